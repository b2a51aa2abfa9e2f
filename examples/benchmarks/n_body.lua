-- N-body: five bodies that attract each other, by small steps of time.
-- Expected: `advance` has all of it: ten pairs of bodies a step. In it the line
-- of the square root and the division, the two slow operations, which wait for
-- each other, leads the six lines that change velocities.

local steps = tonumber(arg and arg[1]) or 4000000

local YEAR = 365.24
local SOLAR = 4 * math.pi ^ 2

local function body(x, y, z, vx, vy, vz, mass)
  return { x = x, y = y, z = z, vx = vx * YEAR, vy = vy * YEAR, vz = vz * YEAR, mass = mass * SOLAR }
end

-- A sun and four planets, roughly where ours are.
local function planets()
  return {
    body(0, 0, 0, 0, 0, 0, 1),
    body(4.84, -1.16, -0.10, 0.00166, 0.00770, -0.00007, 9.5e-4),
    body(8.34, 4.12, -0.40, -0.00277, 0.00500, 0.00002, 2.9e-4),
    body(12.89, -15.11, -0.22, 0.00296, 0.00238, -0.00003, 4.4e-5),
    body(15.38, -25.92, 0.18, 0.00268, 0.00163, -0.00010, 5.2e-5),
  }
end

local function energy(bodies)
  local sum = 0
  for i, a in ipairs(bodies) do
    sum = sum + a.mass * (a.vx ^ 2 + a.vy ^ 2 + a.vz ^ 2) / 2
    for k = i + 1, #bodies do
      local b = bodies[k]
      sum = sum - a.mass * b.mass / math.sqrt((a.x - b.x) ^ 2 + (a.y - b.y) ^ 2 + (a.z - b.z) ^ 2)
    end
  end
  return sum
end

local function advance(bodies, n, dt)
  for i = 1, n do
    local a = bodies[i]
    for k = i + 1, n do
      local b = bodies[k]
      local dx, dy, dz = a.x - b.x, a.y - b.y, a.z - b.z
      local square = dx * dx + dy * dy + dz * dz
      local pull = dt / (square * math.sqrt(square))
      local by_b, by_a = b.mass * pull, a.mass * pull
      a.vx = a.vx - dx * by_b
      a.vy = a.vy - dy * by_b
      a.vz = a.vz - dz * by_b
      b.vx = b.vx + dx * by_a
      b.vy = b.vy + dy * by_a
      b.vz = b.vz + dz * by_a
    end
  end
  for i = 1, n do
    local a = bodies[i]
    a.x, a.y, a.z = a.x + dt * a.vx, a.y + dt * a.vy, a.z + dt * a.vz
  end
end

local bodies = planets()
print(("energy before %.9f"):format(energy(bodies)))
for _ = 1, steps do advance(bodies, #bodies, 0.01) end
print(("energy after  %.9f"):format(energy(bodies)))
