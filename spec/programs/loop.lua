-- A hot loop without calls: one trace of arithmetic and table accesses.
local size = tonumber((...)) or 1000000

local t = {}
for i = 1, 64 do t[i] = i end
local sum = 0
for i = 1, size do
  local k = i % 64 + 1
  t[k] = (t[k] * 5 + i) % 8191
  if t[k] > 4000 then sum = sum + t[k] else sum = sum - 1 end
end
print("loop", size, sum)
