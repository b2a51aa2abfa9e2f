-- Side traces: in a loop, in an inlined call, and nested loops.
local clock = { 0 }
local function pick(t, i)
  if i % 3 == 0 then
    t.a = t.a + i
    return t.a
  elseif i % 3 == 1 then
    t.b = t.b + i
    return t.b
  end
  return t.a - t.b
end
local function outer(t, i)
  local x = pick(t, i)
  if x > 1000 then
    t.c = t.c + 1
  end
  return x
end
return function()
  local t = { a = 0, b = 0, c = 0 }
  local s = 0
  for i = 1, 150 do
    clock[1] = i
    s = s + outer(t, i)
  end
  for i = 1, 14 do
    for j = 1, 12 do
      clock[1] = 1000 + 20 * i + j
      if j % 2 == 0 then
        s = s + pick(t, j)
      else
        t.c = t.c + j
      end
    end
  end
  return s
end, clock
