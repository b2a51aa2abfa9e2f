-- Lua in C in Lua in C, by each way in and out of the VM: the module knows its
-- own call chain at each instruction.
local native = require "native"

local function inner() native.leaf() end
local function middle() native.call(inner) end
local function outer() native.pcall(middle) end
local function body() coroutine.wrap(outer)() end
local function yields() coroutine.yield() native.leaf() end
local function fails() native.fails() end
local function handler() native.leaf() return "handled" end

return function()
  native.deep(3)
  native.call(outer)
  native.cpcall(outer)
  native.resume(body)
  native.resume(yields)
  native.sort(middle)
  native.sort(function() native.resume(body) end)
  table.sort({ 3, 1, 2 }, function(a, b) native.leaf() return a < b end)
  string.gsub("ab", "%w", function() native.call(inner) end)
  pcall(native.call, inner)
  xpcall(fails, handler)
  native.pcall(fails)
  native.pcall(native.call, native.sort, fails)
  native.cpcall(function() native.call(coroutine.wrap(fails)) end)
  native.resume(function() native.call(fails) end)
  return native.leaf()
end
