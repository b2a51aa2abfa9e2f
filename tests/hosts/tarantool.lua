-- Fibers for tarantool: each works and yields, and they take turns until there
-- are samples enough.

local fiber = require "fiber"
local json = require "json"
local profiled = require "profiled"

local function digest(n)
  local sum = 0
  for i = 1, n do sum = sum + #tostring(i / 3) end
  return sum
end

-- A coroutine inside of a fiber, that the fiber leaves by a yield of its own.
local function digests()
  return coroutine.wrap(function()
    while true do
      local sum = digest(5000)
      fiber.yield()
      coroutine.yield(sum)
    end
  end)
end

local function encode(list)
  return #json.encode(list)
end

local expected = digest(5000)
local running = true

local function worker()
  local next_digest = digests()
  local list = {}
  for i = 1, 100 do list[i] = { i, tostring(i) } end
  local length = encode(list)
  while running do
    assert(next_digest() == expected)
    assert(encode(list) == length)
    -- Long enough for the event loop to wait.
    fiber.sleep(0.001)
  end
end

-- A callback from before a session is called on: calls from C would have every
-- trace aborted here.
local compiled = 0
jit.attach(function(what)
  if what == "stop" then compiled = compiled + 1 end
end, "trace")

-- The wall clock ticks while the event loop waits, too.
profiled.start { clock = "wall", interval = 0.5 }
local sum = 0
for i = 1, 1000 do sum = sum + i end
assert(compiled > 0, "nothing is compiled any more")
local fibers = {}
for i = 1, 4 do
  fibers[i] = fiber.new(worker)
  fibers[i]:set_joinable(true)
end
repeat fiber.sleep(0.01) until profiled.enough()
running = false
for i = 1, 4 do assert(fibers[i]:join()) end
profiled.stop()
os.exit(0)
