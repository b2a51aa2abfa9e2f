-- Runs a program with a session or without one, and prints how many traces were
-- started, stopped and aborted, and how often one was left.
-- Usage: SESSION=with|sans luajit unchanged.lua PROGRAM SIZE

-- LuaJIT numbers strings in the order of their making, with numbers drawn by lot in
-- between, and tables are hashed by those numbers: which slot a trace takes for a
-- key's, and so where it is left, depends on all the strings there were before. What
-- the first session makes is there for the second one as long as nothing is
-- collected. It would matter as well when the collector runs, which depends on all
-- that the process has ever allocated.
collectgarbage "stop"
local program, size = arg[1], arg[2]
-- Not an argument: that would be made before this file's constants are, the other
-- word after them, and what follows would lie elsewhere.
local session = os.getenv "SESSION"
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
if session == "sans" then assert(sysprof.stop()) end

local say = print
print = function() end
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
if session == "with" then
  samples = sysprof.report().samples
  assert(sysprof.stop())
end
say(table.concat(counts, ", "))
io.stderr:write(samples)
