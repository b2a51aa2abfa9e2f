-- C functions by the FFI, from the interpreter and from compiled code, and calls
-- back into Lua; finalizers inside of C functions.
local native = require "native"
local ffi = require "ffi"
ffi.cdef [[
int native_plain(int from, int number);
int native_each(int (*callback)(int), int count);
]]
local library = ffi.load(package.searchpath("native", package.cpath))

local function inner() native.leaf() end

return function()
  local sum = 0
  for i = 1, 150 do sum = sum + library.native_plain(0, i) end
  local callback = ffi.cast("int (*)(int)", function(i)
    native.call(inner)
    return i
  end)
  library.native_each(callback, 2)
  native.pcall(function() library.native_each(callback, 1) end)
  callback:free()
  local object = newproxy(true)
  getmetatable(object).__gc = function() native.call(inner) end
  object = nil
  native.collect()
end
