-- Two functions with as much work in each of their lines: `six` has six sines,
-- `two` has two.
local sin = math.sin

local function six(x)
  local s = sin(x + 0.1)
  s = s + sin(x + 0.2)
  s = s + sin(x + 0.3)
  s = s + sin(x + 0.4)
  s = s + sin(x + 0.5)
  return s + sin(x + 0.6)
end

local function two(x)
  local s = sin(x + 0.7)
  return s + sin(x + 0.8)
end

return { six = six, two = two }
