-- FFI: calls into C, structures, and C that calls Lua back (qsort).
local size = tonumber((...)) or 300

local ffi = require "ffi"
pcall(ffi.cdef, [[
typedef struct { int key; double value; } soak_pair;
void qsort(void *base, size_t n, size_t size, int (*compare)(const void *, const void *));
size_t strlen(const char *s);
]])

local pairs_type = ffi.typeof("soak_pair[?]")
-- Made once for all rounds: LuaJIT never forgets a function's type, and has room
-- for 65,536 types.
soak_compare = soak_compare or ffi.typeof("int (*)(const void *, const void *)")
local callback = ffi.cast(soak_compare, function(a, b)
  return ffi.cast("const soak_pair *", a).key - ffi.cast("const soak_pair *", b).key
end)

local sum = 0
for i = 1, size do
  local list = pairs_type(32)
  for k = 0, 31 do
    list[k].key = (k * 17 + i) % 32
    list[k].value = k / 2
  end
  ffi.C.qsort(list, 32, ffi.sizeof("soak_pair"), callback)
  for k = 0, 31 do sum = (sum * 3 + list[k].value * 2 + list[k].key) % 1000003 end
  sum = sum + tonumber(ffi.C.strlen(tostring(i)))
end
callback:free()
print("ffi", size, sum)
