-- Bytes of stream a sample, once stacks repeat: the growth of the file between
-- the first fifth of a run and its end.

local sysprof = require "sysprof"
local support = require "benches.lua.support"

local PROGRAMS = { "callbacks", "strings", "recursion", "coroutines", "calls" }
local SAMPLES = 20000

local environment = setmetatable({ print = function() end }, { __index = _G })

-- Records a program until so many samples are taken; returns bytes and samples.
local function record(chunk, samples)
  local path = support.file()
  assert(sysprof.start { mode = "C", interval = 0.1, path = path, clock = "wall" })
  repeat chunk() until sysprof.report().samples >= samples
  assert(sysprof.stop())
  local file = assert(io.open(path, "rb"))
  local bytes = file:seek "end"
  file:close()
  os.remove(path)
  return bytes, sysprof.report().samples
end

for _, name in ipairs(PROGRAMS) do
  local chunk = setfenv(assert(loadfile("spec/programs/" .. name .. ".lua")), environment)
  local bytes, samples = record(chunk, SAMPLES)
  local early_bytes, early_samples = record(chunk, SAMPLES / 5)
  support.line(("bytes a sample of %s, all in all"):format(name), ("%.1f"):format(bytes / samples), "-")
  support.line("  once stacks repeat", ("%.1f"):format((bytes - early_bytes) / (samples - early_samples)), "at most 8")
end
