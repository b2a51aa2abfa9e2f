-- Root loops with calls inlined into them, four deep, with work on each line.
local clock = { 0 }
local function d(t, i)
  local x = t[i]
  t[i] = x + 1
  return x
end
local function c(t, i)
  local x = d(t, i)
  return x + t[i + 1]
end
local function b(t, i)
  local x = t[i + 2]
  local y = c(t, i)
  return x + y + t.n
end
local function a(t, i)
  t.n = t.n + 1
  return b(t, i)
    + t[i]
end
return function()
  local t = { n = 0 }
  for i = 1, 150 do t[i] = i end
  local s = 0
  for i = 1, 140 do
    clock[1] = i
    s = s + a(t, i)
    s = s + c(t, i)
  end
  local i = 1
  while i < 120 do
    i = i + 1
    clock[1] = 1000 + i
    if t[i] > 1 then
      s = s + b(t, i)
    else
      s = s - d(t, i)
    end
  end
  return s
end, clock
