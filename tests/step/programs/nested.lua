-- A side trace in every fourth turn of the inner of two loops: it has as many sines
-- in all as the way that the other turns take.
local clock = { 0 }
local lines = require "tests.step.lines"
local sines = require "spec.support.six_and_two"
local forget_lines = require "sysprof_stepper".forget_lines
local six, two = sines.six, sines.two
local function turns(s)
  for j = 1, 60 do
    clock[1] = clock[1] + 1
    if j % 4 == 0 then
      s = s + six(j)
    else
      s = s + two(j)
    end
  end
  return s
end
return function()
  local s = 0
  for i = 1, 10 do
    -- By then both traces are there.
    if i == 9 then forget_lines() end
    s = turns(s)
  end
  return s
end, clock, nil, function(counts)
  if not lines.told_apart(counts) then return end
  return lines.compare(counts, "calls", "six_and_two.lua",
    { [6] = 1, [7] = 1, [8] = 1, [9] = 1, [10] = 1, [11] = 1, [15] = 3, [16] = 3 })
end
