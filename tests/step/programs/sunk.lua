-- Allocations that are sunk, and some that escape by a side trace.
local clock = { 0 }
local function point(x, y)
  return { x = x, y = y }
end
local function add(a, b)
  return point(a.x + b.x, a.y + b.y)
end
local function keep(list, p)
  if p.x % 40 == 0 then
    list[#list + 1] = p
  end
end
return function()
  local list = {}
  local sum = point(0, 0)
  for i = 1, 300 do
    clock[1] = clock[1] + 1
    local p = point(i, -i)
    sum = add(sum, p)
    keep(list, p)
  end
  local f
  for i = 1, 100 do
    clock[1] = clock[1] + 1
    f = function() return i end
  end
  return sum.x + #list + f()
end, clock
