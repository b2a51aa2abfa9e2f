-- Checks that a whole profile holds so many samples, and that its VM states add
-- up to them: luajit streamed.lua FILE SAMPLES

local profile = require "spec.support.profile"

local path, counted = arg[1], tonumber(arg[2])
local info = profile.info(path)
local states = 0
for _, n in pairs(info.states) do states = states + n end
if not info.complete then error(path .. ": the profile is not whole", 0) end
if info.samples ~= counted or states ~= counted then
  error(("%s: %d samples were counted, the profile has %d, its VM states %d")
    :format(path, counted, info.samples, states), 0)
end
