-- A program whose loop has six sines of `six` left, and nothing of `two`: what `two`
-- does is the same in each round.
--
--   luajit eliminated.lua FILE SIGNALS
--
-- records itself in mode "C" until SIGNALS signals have come.

local sysprof = require "sysprof"
local six_and_two = require "spec.support.six_and_two"
local six, two = six_and_two.six, six_and_two.two
local path, signals = arg[1], tonumber(arg[2])

local function loop(n)
  local s, x, same = 0, 1, 1
  for _ = 1, n do
    x = x + 1e-6
    s = s + six(x)
    s = s + two(same)
  end
  return s
end

assert(sysprof.start { mode = "C", interval = 0.1, path = path })
-- A tick that had no signal of its own adds weight to another, no knowledge.
repeat
  loop(200000)
  local report = sysprof.report()
until report.samples - report.overruns >= signals
assert(sysprof.stop())
