-- A program whose true shares are known, all of it in one trace: `six` has a sine
-- in each of its six lines, `two` in two, or in none that is left; or, nested, with
-- `six` in a side trace, in every fourth turn of the inner of two loops.
--
--   luajit inlined.lua FILE SIGNALS sines|eliminated|nested
--
-- records itself in mode "C" until SIGNALS signals have come.

local sysprof = require "sysprof"
local sines = require "spec.support.sines"
local six, two = sines.six, sines.two
local path, signals, what = arg[1], tonumber(arg[2]), arg[3]
local eliminated = what == "eliminated"

-- All of its arguments are of a size for which the C library does the same.
local function loop(n)
  local s, x, same = 0, 1, 1
  for _ = 1, n do
    x = x + 1e-6
    s = s + six(x)
    if eliminated then
      s = s + two(same)
    else
      s = s + two(x)
    end
  end
  return s
end

local function nested(n)
  local s, x = 0, 1
  for _ = 1, n / 100 do
    for j = 1, 100 do
      x = x + 1e-6
      if j % 4 == 0 then
        s = s + six(x)
      else
        s = s + two(x)
      end
    end
  end
  return s
end

local loop = what == "nested" and nested or loop
loop(100)
jit.flush()
assert(sysprof.start { mode = "C", interval = 0.1, path = path })
-- A tick that had no signal of its own adds weight to another, no knowledge.
repeat
  loop(200000)
  local report = sysprof.report()
until report.samples - report.overruns >= signals
assert(sysprof.stop())
