-- Metamethods that are compiled: arithmetic, index, call, comparison, concat.
local clock = { 0 }
local Point = {}
Point.__index = Point
local function point(x, y)
  return setmetatable({ x = x, y = y }, Point)
end
function Point.__add(a, b)
  local x = a.x + b.x
  return point(x, a.y + b.y)
end
function Point.__call(self, n)
  self.x = self.x + n
  return self.x
end
function Point.__lt(a, b)
  return a.x < b.x
end
function Point.__eq(a, b)
  return a.x == b.x
end
function Point:length()
  local x = self.x
  return x * x + self.y * self.y
end
local computed = setmetatable({}, {
  __index = function(t, k)
    return k * 2
  end,
  __newindex = function(t, k, v)
    Point.last = v
  end,
})
return function()
  local p, q = point(0, 0), point(1, 2)
  local s = 0
  for i = 1, 120 do
    clock[1] = clock[1] + 1
    p = p + q
    s = s + p(1)
    if q < p then s = s + 1 end
    if q == p then s = s - 1 end
    s = s + p:length()
  end
  for i = 1, 120 do
    clock[1] = clock[1] + 1
    s = s + computed[i]
    computed[i] = s
  end
  return s
end, clock
