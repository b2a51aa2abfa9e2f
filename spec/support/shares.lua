-- A program whose true shares are known: `heavy` and `light` call the same
-- function, one of them three times as often, with the JIT off.
--
--   luajit program.lua FILE SIGNALS HEAVY LIGHT
--
-- records itself in mode "C" until SIGNALS signals have come, where `heavy`
-- does HEAVY pieces of work each time and `light` LIGHT.

jit.off()
local sysprof = require "sysprof"
local path, signals, heavies, lights = arg[1], tonumber(arg[2]), tonumber(arg[3]), tonumber(arg[4])

local function piece()
  local sum = 0
  for i = 1, 2000 do sum = (sum * 3 + i) % 1000003 end
  return sum
end

local function heavy()
  for _ = 1, heavies do piece() end
end

local function light()
  for _ = 1, lights do piece() end
end

assert(sysprof.start { mode = "C", interval = 0.5, path = path })
-- A tick that had no signal of its own adds weight to another, no knowledge.
repeat
  for _ = 1, 50 do
    heavy()
    light()
  end
  local report = sysprof.report()
until report.samples - report.overruns >= signals
assert(sysprof.stop())
