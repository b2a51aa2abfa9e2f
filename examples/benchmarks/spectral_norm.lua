-- Spectral norm: the largest singular value of an infinite matrix's corner, by
-- the power method. Expected: `times` and `transposed_times` have half each, all
-- of it in the sum of their inner loop: `element`, which divides and is inlined
-- there, has the division, the slow operation.

local size = tonumber(arg and arg[1]) or 1500

-- The matrix, counted from 0.
local function element(i, j)
  local diagonal = i + j
  return 1 / (diagonal * (diagonal + 1) / 2 + i + 1)
end

local function times(x, n, y)
  for i = 1, n do
    local sum = 0
    for j = 1, n do
      sum = sum + x[j] * element(i - 1, j - 1)
    end
    y[i] = sum
  end
end

local function transposed_times(x, n, y)
  for i = 1, n do
    local sum = 0
    for j = 1, n do
      sum = sum + x[j] * element(j - 1, i - 1)
    end
    y[i] = sum
  end
end

local function both(x, n, room, y)
  times(x, n, room)
  transposed_times(room, n, y)
end

local function dot(x, y, n)
  local sum = 0
  for i = 1, n do sum = sum + x[i] * y[i] end
  return sum
end

local u, v, room = {}, {}, {}
for i = 1, size do u[i], v[i], room[i] = 1, 0, 0 end
for _ = 1, 10 do
  both(u, size, room, v)
  both(v, size, room, u)
end
print(("%.9f"):format(math.sqrt(dot(u, v, size) / dot(v, v, size))))
