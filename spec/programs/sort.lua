-- Sorts with a comparator written in Lua: C calls back into Lua at every step.
local size = tonumber((...)) or 2000

local seed = 42
local function random()
  seed = (seed * 16807) % 2147483647
  return seed
end

local records = {}
for i = 1, size do
  records[i] = { key = random() % 1000, place = i }
end
table.sort(records, function(a, b)
  if a.key ~= b.key then return a.key < b.key end
  return a.place < b.place
end)

local sum = 0
for i = 1, size do
  assert(i == 1 or records[i - 1].key <= records[i].key)
  sum = (sum * 31 + records[i].place) % 1000000007
end
print("sort", size, sum)
