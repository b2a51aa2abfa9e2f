-- Starts busted in the LuaJIT that runs this file; its arguments are busted's.
require "busted.runner" { standalone = false }
