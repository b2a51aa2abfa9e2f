-- Native code called from traces: strings, tables, allocation, math, pcall.
local clock = { 0 }
local function label(i)
  local s = "k" .. i
  return s .. "x"
end
local function store(t, i)
  local k = label(i)
  t[k] = i
  return math.sin(i) + math.floor(i / 3)
end
local function guarded(t, i)
  local ok, v = pcall(store, t, i)
  return ok and v or 0
end
return function()
  local t, s = {}, 0
  for i = 1, 120 do
    clock[1] = clock[1] + 1
    s = s + store(t, i)
    s = s + guarded(t, i)
  end
  local parts = {}
  for i = 1, 100 do
    clock[1] = clock[1] + 1
    table.insert(parts, label(i):sub(1, 3):upper())
    s = s + i % 7 ^ 2
  end
  return s + #table.concat(parts)
end, clock
