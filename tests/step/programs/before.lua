-- Compiled before anybody looked: only what snapshots say is known.
local clock = { 0 }
local function add(t, i)
  local x = t[i]
  return x + i
end
local function both(t, i)
  local a = add(t, i)
  return a * 2
end
local function sum(t)
  local s = 0
  for i = 1, 40 do
    clock[1] = clock[1] + 1
    s = s + both(t, i)
  end
  return s
end
local t = {}
for i = 1, 40 do t[i] = i end
return function() return sum(t) + sum(t) end, clock, function()
  for _ = 1, 60 do sum(t) end
  clock[1] = 0
end
