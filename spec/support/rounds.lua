-- Runs a program again and again in one process, and holds what it prints in
-- each round against the first round:
--
--   luajit rounds.lua PROGRAM rounds=N|seconds=N|signals=N [size=N] [profile=FILE interval=MS]
--
-- With `profile` all of it runs under the profiler in mode "C", for as long as it
-- takes to get that many signals if it is these that count. Prints what one
-- round printed, so that two runs can be compared; what happened goes to stderr
-- as `rounds N signals N samples N`. Any difference, and any sample that the counters do
-- not account for, ends it with an error.

local program = assert(arg[1], "which program?")
local options = {}
for i = 2, #arg do
  local key, value = arg[i]:match("^(%a+)=(.*)$")
  assert(key, "not KEY=VALUE: " .. arg[i])
  options[key] = value
end
local rounds, seconds, signals = tonumber(options.rounds), tonumber(options.seconds), tonumber(options.signals)
assert(rounds or seconds or (signals and options.profile), "rounds=N, seconds=N or, under the profiler, signals=N must be given")

-- The program's own `print` writes into the round's text.
local text
local environment = setmetatable({
  print = function(...)
    local parts = { n = select("#", ...), ... }
    for i = 1, parts.n do parts[i] = tostring(parts[i]) end
    text[#text + 1] = table.concat(parts, "\t") .. "\n"
  end,
}, { __index = _G })
local chunk = setfenv(assert(loadfile(program)), environment)

local function round()
  text = {}
  chunk(options.size)
  return table.concat(text)
end

local sysprof
if options.profile then
  sysprof = require "sysprof"
  assert(sysprof.start { mode = "C", interval = tonumber(options.interval), path = options.profile })
end

-- A sample stands for each signal, and for each that there was no time for.
local function received()
  local report = sysprof.report()
  return report.samples - report.overruns
end

local first, done = nil, 0
local began = os.time()
repeat
  local printed = round()
  first = first or printed
  done = done + 1
  if printed ~= first then
    error(("%s: round %d printed\n%s where round 1 printed\n%s"):format(program, done, printed, first), 0)
  end
until (rounds and done >= rounds) or (seconds and os.difftime(os.time(), began) >= seconds)
  or (signals and received() >= signals)

local samples = 0
if sysprof then
  assert(sysprof.stop())
  signals = received()
  local report = sysprof.report()
  samples = report.samples
  local sum = 0
  for _, n in pairs(report.vmstate) do sum = sum + n end
  if sum ~= samples then
    error(("%s: the VM states add up to %d, of %d samples"):format(program, sum, samples), 0)
  end
end
io.stderr:write(("rounds %d signals %d samples %d\n"):format(done, signals or 0, samples))
io.write(first)
