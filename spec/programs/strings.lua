-- Builds strings: concatenation in a loop, table.concat, format, rep, reverse,
-- patterns; many of them new, so that the string table grows and is collected.
local size = tonumber((...)) or 1000

local digest = 0
local function add(s)
  for i = 1, #s, 7 do digest = (digest * 31 + s:byte(i)) % 1000000007 end
end

local line = ""
for i = 1, size do
  line = line .. i .. ";"
  if #line > 500 then line = line:sub(-50) end
  local parts = {}
  for k = 1, 10 do parts[k] = ("%05d:%s:%x"):format(i * k, tostring(k / 8), i) end
  add(table.concat(parts, "|"))
  add(("x" .. i):rep(5, "-"):reverse():upper())
  for word in line:gmatch("%d+") do digest = (digest + #word) % 1000000007 end
end
add(line)
print("strings", size, digest)
