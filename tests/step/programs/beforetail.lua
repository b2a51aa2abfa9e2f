-- Tail calls of one another, compiled before anybody looked: what snapshots have.
local clock = { 0 }
local even, odd
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
local function run(t)
  even(t, 150)
  even(t, 151)
  odd(t, 151)
end
return function()
  local t = { e = 0, o = 0 }
  run(t)
  return t.e - t.o
end, clock, function()
  for _ = 1, 4 do run { e = 0, o = 0 } end
  clock[1] = 0
end
