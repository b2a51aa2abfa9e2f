-- Vararg functions that are compiled: inlined, as the start of a trace, select.
local clock = { 0 }
local function add(t, ...)
  local a, b = ...
  t.n = t.n + a
  return t.n + b
end
local function sum(...)
  local s = 0
  for i = 1, select("#", ...) do
    s = s + (select(i, ...))
  end
  return s
end
local function pass(t, ...)
  return add(t, ...)
end
return function()
  local t = { n = 0 }
  local s = 0
  for i = 1, 120 do
    clock[1] = clock[1] + 1
    s = s + add(t, i, 2)
    s = s + pass(t, i, 3, 4)
  end
  for i = 1, 80 do
    clock[1] = clock[1] + 1
    s = s + sum(i, 2, 3)
  end
  return s
end, clock
