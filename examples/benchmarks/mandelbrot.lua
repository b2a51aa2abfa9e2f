-- Mandelbrot: counts the points of a square grid that stay in the set.
-- Expected: `stays` has all of it, as each point takes up to 100 rounds of its
-- loop. In it the line that computes the next point: four multiplications and
-- additions, of which each waits for the one before.

local size = tonumber(arg and arg[1]) or 1000

local ROUNDS = 100

local function stays(cr, ci)
  local zr, zi, zr2, zi2 = 0, 0, 0, 0
  for _ = 1, ROUNDS do
    zr, zi = zr2 - zi2 + cr, 2 * zr * zi + ci
    zr2, zi2 = zr * zr, zi * zi
    if zr2 + zi2 > 4 then return false end
  end
  return true
end

local function row(y)
  local inside = 0
  local ci = 2 * y / size - 1
  for x = 0, size - 1 do
    if stays(2 * x / size - 1.5, ci) then inside = inside + 1 end
  end
  return inside
end

local inside = 0
for y = 0, size - 1 do inside = inside + row(y) end
print(("%d of %d points stay"):format(inside, size * size))
