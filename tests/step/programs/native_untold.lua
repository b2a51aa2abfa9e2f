-- Code without unwind tables that changes stacks.
local native = require "native"

return function()
  native.switch()
  return native.leaf()
end
