-- One trace with a read of a table in each of six lines of one function and two of
-- another, where to depends on the read before: as many instructions for each.
local clock = { 0 }
local lines = require "tests.step.lines"
local t = {}
for i = 1, 16 do t[i] = i % 7 end
local function six(i)
  i = t[i + 1]
  i = t[i + 2]
  i = t[i + 3]
  i = t[i + 4]
  i = t[i + 5]
  i = t[i + 6]
  return i
end
local function two(i)
  i = t[i + 7]
  i = t[i + 8]
  return i
end
return function()
  local i = 1
  for n = 1, 90 do
    clock[1] = n
    i = six(i)
    i = two(i)
  end
  return i
end, clock, nil, function(counts)
  if not lines.told_apart(counts) then return end
  return lines.compare(counts, "in_loops", "reads.lua",
    { [8] = 1, [9] = 1, [10] = 1, [11] = 1, [12] = 1, [13] = 1, [17] = 1, [18] = 1 })
end
