-- Iterators that are compiled: closures, stateless functions, ipairs, pairs.
local clock = { 0 }
local function range(n)
  local i = 0
  return function()
    i = i + 1
    if i <= n then
      return i, i * 2
    end
  end
end
local function below(max, i)
  if i < max then
    return i + 1
  end
end
return function()
  local t, s = {}, 0
  for i = 1, 100 do t[i] = i end
  for a, b in range(120) do
    clock[1] = clock[1] + 1
    s = s + b
  end
  for i in below, 120, 0 do
    clock[1] = clock[1] + 1
    s = s + i
  end
  for i, v in ipairs(t) do
    clock[1] = clock[1] + 1
    s = s + v
  end
  for k, v in pairs(t) do
    clock[1] = clock[1] + 1
    s = s + v
  end
  for k, v in next, t do
    clock[1] = clock[1] + 1
    s = s + v
  end
  return s
end, clock
