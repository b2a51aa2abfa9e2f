-- What the profile of compiled code says against what is true: shares of functions
-- that are inlined into traces, timed apart in the same run, next to what LuaJIT's
-- own profiler says of the same program.

local sysprof = require "sysprof"
local profile = require "spec.support.profile"
local six_and_two = require "spec.support.six_and_two"
local native = require "jit.profile"
local support = require "benches.lua.support"

local SIGNALS, SECONDS, ROUNDS = 30000, 8, 15
local sin = math.sin

local table_of = {}
for i = 1, 4096 do table_of[i] = i % 7 end

-- Each case: two functions, and a loop that calls them as it is told to. What the
-- loop does besides is small, and the same for both.
local cases = {}

-- `two` of what changes in each round, or of what doesn't: then its work is moved out
-- of the loop.
local function sines(changes)
  local six, two = six_and_two.six, six_and_two.two
  return function(with_six, with_two)
    return function(n)
      local s, x, same = 0, 1, 1
      for _ = 1, n do
        x = x + 1e-6
        if with_six then s = s + six(x) end
        if with_two then s = s + two(changes and x or same) end
      end
      return s
    end, "six", "two"
  end
end

cases["six sines to two"] = sines(true)
cases["six sines to none that is left"] = sines(false)

-- The place that is read next depends on what was read: reads don't overlap.
cases["thirty table reads to ten"] = function(with_thirty, with_ten)
  local t = table_of
  local function ten(i)
    i = t[i + 1] + i t[1] = i i = t[i % 64 + 2] + i i = t[i % 64 + 3] i = t[i + 4] + i i = t[i % 64 + 5]
    i = t[i + 6] + i i = t[i % 64 + 7] i = t[i + 8] + i i = t[i % 64 + 9] i = t[i + 10]
    t[1] = 3
    return i
  end
  local function thirty(i)
    i = t[i + 1] + i t[1] = i i = t[i % 64 + 2] + i i = t[i % 64 + 3] i = t[i + 4] + i i = t[i % 64 + 5]
    i = t[i + 6] + i i = t[i % 64 + 7] i = t[i + 8] + i i = t[i % 64 + 9] i = t[i + 10]
    t[1] = 3
    i = t[i + 1] + i t[1] = i i = t[i % 64 + 2] + i i = t[i % 64 + 3] i = t[i + 4] + i i = t[i % 64 + 5]
    i = t[i + 6] + i i = t[i % 64 + 7] i = t[i + 8] + i i = t[i % 64 + 9] i = t[i + 10]
    t[1] = 3
    i = t[i + 1] + i t[1] = i i = t[i % 64 + 2] + i i = t[i % 64 + 3] i = t[i + 4] + i i = t[i % 64 + 5]
    i = t[i + 6] + i i = t[i % 64 + 7] i = t[i + 8] + i i = t[i % 64 + 9] i = t[i + 10]
    t[1] = 3
    return i
  end
  return function(n)
    local i = 0
    for _ = 1, n do
      if with_thirty then i = thirty(i) end
      if with_ten then i = ten(i) end
    end
    return i
  end, "thirty", "ten"
end

-- Nested loops; every fourth turn of the inner one leaves for a side trace.
cases["a side trace in nested loops"] = function(with_often, with_seldom)
  local function often(x)
    return sin(x + 0.1) + sin(x + 0.2)
  end
  local function seldom(x)
    return sin(x + 0.3) + sin(x + 0.4) + sin(x + 0.5) + sin(x + 0.6) + sin(x + 0.7) + sin(x + 0.8)
  end
  return function(n)
    local s, x = 0, 1
    for _ = 1, n / 100 do
      for j = 1, 100 do
        x = x + 1e-6
        if j % 4 == 0 then
          if with_seldom then s = s + seldom(x) end
        elseif with_often then
          s = s + often(x)
        end
      end
    end
    return s
  end, "often", "seldom"
end

local function share(first, second)
  return 100 * first / (first + second)
end

-- The share of the first function, of what both take: each takes by how much the
-- loop is faster without it. Of each loop the fastest of some rounds, taken in turn:
-- whatever disturbs takes time.
local function truth(case, n)
  local least = { both = math.huge, first = math.huge, second = math.huge }
  for _ = 1, ROUNDS do
    for which, seconds in pairs(least) do
      jit.flush()
      local loop = case(which ~= "second", which ~= "first")
      loop(1000)
      local began = support.cpu()
      loop(n)
      least[which] = math.min(seconds, support.cpu() - began)
    end
  end
  return share(least.both - least.second, least.both - least.first)
end

local function ours(loop, first, second, n)
  local path = support.file()
  jit.flush()
  assert(sysprof.start { mode = "C", interval = 0.1, path = path })
  repeat
    loop(n)
    local report = sysprof.report()
  until report.samples - report.overruns >= SIGNALS
  assert(sysprof.stop())
  local totals = profile.totals(path)
  os.remove(path)
  return share(totals[first] or 0, totals[second] or 0)
end

-- By the line that a function begins at, as LuaJIT's profiler names it.
local function its(loop, n, lines)
  local counts = {}
  native.start("fi1", function(thread, samples)
    local line = tonumber(native.dumpstack(thread, "l", 1):match ":(%d+)$")
    if line then counts[line] = (counts[line] or 0) + samples end
  end)
  local began = support.cpu()
  repeat loop(n) until support.cpu() - began >= SECONDS
  native.stop()
  local sums = { 0, 0 }
  for line, samples in pairs(counts) do
    for which, range in ipairs(lines) do
      if line >= range[1] and line <= range[2] then sums[which] = sums[which] + samples end
    end
  end
  return share(sums[1], sums[2])
end

local function lines_of(f)
  local info = debug.getinfo(f, "S")
  return { info.linedefined, info.lastlinedefined }
end

local function upvalue(f, wanted)
  for i = 1, 20 do
    local name, value = debug.getupvalue(f, i)
    if name == wanted then return value end
  end
end

local N = 400000
print(("%-40s %8s %8s %8s   (aim: within 2 points of true)"):format("share of the first function in percent", "true", "sysprof", "jit.p"))
for _, name in ipairs { "six sines to two", "six sines to none that is left", "thirty table reads to ten", "a side trace in nested loops" } do
  local case = cases[name]
  local real = truth(case, N)
  local loop, first, second = case(true, true)
  local found = ours(loop, first, second, N)
  local theirs = its(loop, N, { lines_of(upvalue(loop, first)), lines_of(upvalue(loop, second)) })
  print(("  %-38s %8.1f %8.1f %8.1f"):format(name, real, found, theirs))
end
