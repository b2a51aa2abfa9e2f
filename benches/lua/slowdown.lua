-- How much longer programs take under the profiler at 1 ms in mode "C" than
-- under a handler that does nothing, driven by the same clock at the same rate.

local sysprof = require "sysprof"
local support = require "benches.lua.support"

local ROUNDS, PIECES = 7, 12
local PROGRAMS = { "callbacks", "strings", "metamethods", "recursion", "calls" }

local environment = setmetatable({ print = function() end }, { __index = _G })

local function timed(chunk)
  local began = support.cpu()
  for _ = 1, PIECES do chunk() end
  return support.cpu() - began
end

local all = {}
for _, name in ipairs(PROGRAMS) do
  local chunk = setfenv(assert(loadfile("spec/programs/" .. name .. ".lua")), environment)
  local path = support.file()
  timed(chunk)
  local ratios = {}
  for round = 1, ROUNDS do
    local empty = support.with_empty_timer(1, function() return timed(chunk) end)
    assert(sysprof.start { mode = "C", interval = 1, path = path, clock = "wall" })
    local profiled = timed(chunk)
    assert(sysprof.stop())
    ratios[round] = profiled / empty
  end
  os.remove(path)
  all[#all + 1] = support.median(ratios)
  support.line(("time of %s under the profiler"):format(name), ("%.3f"):format(all[#all]), "at most 1.02")
end
