-- The two sines of one function are the same in each round, so that they are moved
-- out of the loop: nothing in the loop is that function's, not an instruction.
local clock = { 0 }
local lines = require "tests.step.lines"
local sines = require "spec.support.six_and_two"
local six, two = sines.six, sines.two
return function()
  local s, same = 0, 1
  for i = 1, 90 do
    clock[1] = i
    s = s + six(i)
    s = s + two(same)
  end
  return s
end, clock, nil, function(counts)
  if not lines.told_apart(counts) then return end
  return lines.compare(counts, "calls", "six_and_two.lua",
      { [6] = 1, [7] = 1, [8] = 1, [9] = 1, [10] = 1, [11] = 1 })
    or lines.compare(counts, "in_loops", "six_and_two.lua", { [15] = 0, [16] = 0 })
end
