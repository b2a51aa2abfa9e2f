-- C++ that throws and catches, and closures of Rust, between Lua and Lua; errors
-- of Lua's that unwind through both.
local native = require "native"

local function inner() native.leaf() end
local function fails() native.fails() end

return function()
  native.cpp(inner)
  native.rust(inner)
  native.cpp(function() native.rust(inner) end)
  native.pcall(native.rust, fails)
  native.pcall(native.rust, function() native.cpp(inner) end)
  native.pcall(function() native.call(native.rust, fails) end)
end
