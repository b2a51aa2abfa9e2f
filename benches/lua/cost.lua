-- What one sample costs more than a signal to a handler that does nothing:
-- signals raised from the bottom of a recursion, JIT off, mode "C".

jit.off()
local ffi = require "ffi"
local sysprof = require "sysprof"
local support = require "benches.lua.support"

local SIGNALS, ROUNDS = 20000, 9

local function raise()
  local C, number = ffi.C, support.SIGPROF
  local began = support.cpu()
  for _ = 1, SIGNALS do C.raise(number) end
  return support.cpu() - began
end

local function at_depth(depth)
  if depth <= 1 then return (raise()) end
  local time = at_depth(depth - 1)
  return time
end

-- Microseconds a signal with the profiler running, whose own clock is silent.
local function profiled(depth)
  local path = support.file()
  assert(sysprof.start { mode = "C", interval = 1e6, path = path, clock = "wall" })
  local time = at_depth(depth)
  assert(sysprof.stop())
  os.remove(path)
  local samples = sysprof.report().samples
  assert(samples >= SIGNALS, "the profiler took " .. samples .. " samples of " .. SIGNALS .. " signals")
  return time / SIGNALS * 1e6
end

local function empty(depth)
  return support.with_empty_handler(function() return at_depth(depth) end) / SIGNALS * 1e6
end

for _, case in ipairs { { 30, "at most 1 us" }, { 100, "at most 2 us" } } do
  local depth, wanted = case[1], case[2]
  local with, without, added = {}, {}, {}
  -- In turns: what else the machine does falls on both.
  for round = 1, ROUNDS do
    without[round], with[round] = empty(depth), profiled(depth)
    added[round] = with[round] - without[round]
  end
  support.line(("a sample at Lua depth %d adds to an empty handler"):format(depth),
    ("%.2f us"):format(support.median(added)), wanted)
  support.line("  of a signal that costs without and with it",
    ("%.2f, %.2f us"):format(support.median(without), support.median(with)), "-")
end
