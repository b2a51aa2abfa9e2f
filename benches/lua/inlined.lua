-- What one sample costs in compiled code more than a signal to a handler that does
-- nothing: signals raised by the innermost of ten calls that are inlined into one
-- trace, mode "C".

local ffi = require "ffi"
local sysprof = require "sysprof"
local support = require "benches.lua.support"

local SIGNALS, ROUNDS, FRAMES = 20000, 9, 10

local raise = ffi.C.raise
local number = support.SIGPROF
local function innermost() return raise(number) end
-- Each is a function of its own, or LuaJIT would take it for recursion.
local outermost = innermost
for _ = 2, FRAMES do
  local inner = outermost
  outermost = assert(loadstring("local inner = ... return function() local result = inner() return result end"))(inner)
end

local function signals()
  local began = support.cpu()
  local failed = 0
  for _ = 1, SIGNALS do failed = failed + outermost() end
  assert(failed == 0)
  return (support.cpu() - began) / SIGNALS * 1e6
end

local function profiled()
  local path = support.file()
  assert(sysprof.start { mode = "C", interval = 1e6, path = path, clock = "wall" })
  jit.flush()
  local time = signals()
  assert(sysprof.stop())
  os.remove(path)
  local compiled = sysprof.report().vmstate.TRACE
  assert(compiled >= 0.9 * SIGNALS, "only " .. compiled .. " samples in compiled code")
  return time
end

local with, without, added = {}, {}, {}
for round = 1, ROUNDS do
  jit.flush()
  without[round], with[round] = support.with_empty_handler(signals), profiled()
  added[round] = with[round] - without[round]
end
support.line(("a sample in a trace with %d inlined frames adds"):format(FRAMES),
  ("%.2f us"):format(support.median(added)), "at most 1.5 us")
support.line("  of a signal that costs without and with it",
  ("%.2f, %.2f us"):format(support.median(without), support.median(with)), "-")
