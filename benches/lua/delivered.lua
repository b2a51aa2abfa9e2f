-- How many of the samples that were asked for are delivered, by weight: five
-- seconds of CPU on each clock.

local sysprof = require "sysprof"
local support = require "benches.lua.support"

local function work(seconds)
  local began, sum = support.cpu(), 0
  repeat
    for i = 1, 100000 do sum = (sum + i * 7) % 1000003 end
  until support.cpu() - began >= seconds
end

local function measure(clock, interval, wanted)
  local what = ("samples delivered, clock %s, %g ms"):format(clock, interval)
  local ok, message = sysprof.start { clock = clock, interval = interval }
  if not ok then
    support.line(what, "not here", message)
    return
  end
  local cpu, wall = support.cpu(), support.wall()
  work(5)
  cpu, wall = support.cpu() - cpu, support.wall() - wall
  assert(sysprof.stop())
  local asked = (clock == "wall" and wall or cpu) * 1000 / interval
  support.line(what, ("%.1f %%"):format(100 * sysprof.report().samples / asked), wanted)
end

for _, clock in ipairs { "perf", "thread", "itimer", "wall" } do measure(clock, 1, "at least 98 %") end
measure("perf", 0.1, "at least 90 %")
