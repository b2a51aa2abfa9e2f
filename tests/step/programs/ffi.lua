-- FFI: calls, callbacks, metatypes, conversions.
local ffi = require "ffi"
ffi.cdef [[
int abs(int); size_t strlen(const char *);
void qsort(void *base, size_t n, size_t size, int (*cmp)(const int *, const int *));
typedef struct { double x, y; } step_point;
]]
local point
local mt = {
  __add = function(a, b) return point(a.x + b.x, a.y + b.y) end,
  __index = { len = function(p) return math.sqrt(p.x * p.x + p.y * p.y) end },
  __tostring = function(p) return "point" end,
}
point = ffi.metatype("step_point", mt)
return function()
  for i = 1, 3 do ffi.C.abs(-i); ffi.C.strlen("hello") end
  local a = ffi.new("int[5]", { 5, 3, 1, 4, 2 })
  local cmp = ffi.cast("int (*)(const int *, const int *)", function(x, y) return x[0] - y[0] end)
  ffi.C.qsort(a, 5, 4, cmp)
  cmp:free()
  local p = point(3, 4) + point(1, 1)
  p:len()
  tostring(p)
  return ffi.string("abc", 2), ffi.sizeof(a), tonumber(a[0])
end
