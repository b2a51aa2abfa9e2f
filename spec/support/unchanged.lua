-- Runs a program with a session or without one, and prints how many traces were
-- started, stopped and aborted, and how often one was left.
-- Usage: luajit unchanged.lua PROGRAM SIZE with|sans SHIFT
-- SHIFT moves what is allocated afterwards.
local program, size, how, shift = arg[1], arg[2], arg[3], tonumber(arg[4])
local shifting = ("x"):rep(1000 * shift)
local sysprof = require "sysprof"
arg = { [0] = program, size }
-- Hot counters go by the address of bytecode: it is loaded before anything differs.
local chunk = assert(loadfile(program))

local count = { start = 0, stop = 0, abort = 0, flush = 0, exit = 0 }
local function traced(what) count[what] = count[what] + 1 end
local function left() count.exit = count.exit + 1 end
jit.off(traced)
jit.off(left)
jit.attach(traced, "trace")
jit.attach(left, "texit")

local function start()
  assert(sysprof.start { mode = "C", interval = 0.2, path = "/dev/null" })
end
-- The first session leaves behind what one does.
start()
assert(sysprof.stop())
start()
if how == "sans" then assert(sysprof.stop()) end

local say = print
print = function() end
collectgarbage()
-- When the collector runs depends on all that the process has ever allocated.
collectgarbage "stop"
-- Switched on, the compiler counts from the start.
jit.off()
jit.on()
for what in pairs(count) do count[what] = 0 end
chunk()
local counts = {}
for _, what in ipairs { "start", "stop", "abort", "flush", "exit" } do
  counts[#counts + 1] = what .. " " .. count[what]
end
local samples = 0
if how == "with" then
  samples = sysprof.report().samples
  assert(sysprof.stop())
end
say(table.concat(counts, ", "))
assert(#shifting == 1000 * shift)
io.stderr:write(samples)
