-- Tail calls that are compiled where C has called, or a coroutine has begun: below
-- the trace's base there is no function of that stretch.
local clock = { 0 }
local even, odd
function even(t, n)
  if n == 0 then return "even" end
  t.e = t.e + 1
  clock[1] = clock[1] + 1
  return odd(t, n - 1)
end
function odd(t, n)
  if n == 0 then return "odd" end
  t.o = t.o + 1
  return even(t, n - 1)
end
local counts, turns
local function replace()
  turns = turns + 1
  return even(counts, 100 + turns)
end
local function resumed() return coroutine.wrap(even)(counts, 121) end
return function()
  counts, turns = { e = 0, o = 0 }, 0
  local s = string.gsub("abc", "%w", replace)
  for i = 1, 3 do
    s = s .. resumed()
    s = s .. select(2, pcall(odd, counts, 60 + i))
  end
  return s
end, clock
