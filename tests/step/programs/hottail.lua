-- Tail calls that are compiled: of itself, of another one, in an inlined call.
local clock = { 0 }
local even, odd
local function loop(t, n)
  if n == 0 then return t.n end
  t.n = t.n + 1
  clock[1] = clock[1] + 1
  return loop(t, n - 1)
end
function even(t, n)
  if n == 0 then return true end
  t.e = t.e + 1
  clock[1] = clock[1] + 1
  return odd(t, n - 1)
end
function odd(t, n)
  if n == 0 then return false end
  t.o = t.o + 1
  return even(t, n - 1)
end
local function leaf(t, i)
  t.n = t.n + i
  return t.n
end
local function pass(t, i)
  t.e = t.e + 1
  return leaf(t, i)
end
return function()
  local t = { n = 0, e = 0, o = 0 }
  loop(t, 150)
  -- Left where it began, and in the other function, which has taken its place.
  even(t, 150)
  even(t, 151)
  odd(t, 151)
  local s = 0
  for i = 1, 150 do
    clock[1] = clock[1] + 1
    s = s + pass(t, i)
  end
  return s
end, clock
