-- One trace with a sine in each of six lines of one function and two of another:
-- the C library is called as often from each.
local clock = { 0 }
local lines = require "tests.step.lines"
local sines = require "spec.support.six_and_two"
local six, two = sines.six, sines.two
return function()
  local s = 0
  for i = 1, 90 do
    clock[1] = i
    s = s + six(i)
    s = s + two(i)
  end
  return s
end, clock, nil, function(counts)
  if not lines.told_apart(counts) then return end
  return lines.compare(counts, "calls", "six_and_two.lua",
    { [6] = 1, [7] = 1, [8] = 1, [9] = 1, [10] = 1, [11] = 1, [15] = 1, [16] = 1 })
end
