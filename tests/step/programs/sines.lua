-- One trace with a sine in each of six lines of one function and two of another:
-- the C library is called as often from each.
local clock = { 0 }
local sines = require "spec.support.sines"
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
  -- Where LuaJIT says no more of a trace than where it starts.
  if counts.ancestors > counts.in_traces / 2 then return end
  local calls = {}
  for _, line in ipairs { 6, 7, 8, 9, 10, 11, 15, 16 } do
    calls[#calls + 1] = counts["calls_from_" .. line] or 0
  end
  for _, n in ipairs(calls) do
    if n == 0 or n ~= calls[1] then return "sines by line: " .. table.concat(calls, " ") end
  end
end
