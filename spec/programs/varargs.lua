-- Functions with a variable number of arguments: select, unpack, passing on,
-- and as the body of a coroutine and of a callback.
local size = tonumber((...)) or 2000

local function sum(...)
  local total = 0
  for i = 1, select("#", ...) do total = total + (select(i, ...)) end
  return total
end
local function pass(...) return ... end
local function around(f, ...) return 1, f(...) end
local function collect(...)
  local t = { n = select("#", ...), ... }
  return t
end
local function deep(n, ...)
  if n == 0 then return select("#", ...) end
  return (deep(n - 1, n, ...))
end

local total = 0
for i = 1, size do
  local t = collect(pass(i, i + 1, i + 2, nil))
  local list = {}
  for k = 1, i % 30 do list[k] = k end
  total = total + t.n + sum(unpack(list)) + select("#", around(pass, unpack(list)))
  total = total + deep(i % 20)
  total = total + coroutine.wrap(function(...) return sum(...) end)(i, 2, 3)
  ;("ab"):gsub("(a)(b)", function(...) total = total + select("#", ...) end)
end
print("varargs", total)
