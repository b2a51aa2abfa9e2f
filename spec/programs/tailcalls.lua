-- Tail calls: to itself, around a ring of functions, into built-ins and through
-- a metamethod, with changing numbers of arguments.
local size = tonumber((...)) or 300

local function loop(n, acc)
  if n == 0 then return acc end
  return loop(n - 1, (acc * 3 + n) % 1000003)
end
local ring = {}
for i = 1, 5 do
  ring[i] = function(n, acc, ...)
    if n == 0 then return acc + select("#", ...) end
    return ring[n % 5 + 1](n - 1, acc + i, ...)
  end
end
local function builtin(a, b) return math.max(a, b) end
local callable = setmetatable({}, { __call = function(_, a) return tostring(a) end })
local function through(a) return callable(a) end
local function guarded(...) return pcall(loop, ...) end

local sum = 0
for i = 1, size do
  sum = (sum + loop(i, i)) % 1000003
  sum = sum + ring[1](i, 0, i, i, i) + builtin(i, 10) + #through(i)
  local _, value = guarded(i % 50, 1)
  sum = sum + value
end
print("tailcalls", sum)
