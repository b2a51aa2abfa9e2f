-- A hot loop with calls: small functions, a method, a closure and a built-in,
-- which the compiler inlines, and side traces where the branches part.
local size = tonumber((...)) or 200000

local Counter = {}
Counter.__index = Counter
function Counter:add(n) self.total = (self.total + n) % 1000003 end

local function square(n) return n * n end
local function choose(n)
  if n % 3 == 0 then return square(n) end
  if n % 3 == 1 then return -square(n) end
  return n
end
local function adder(by) return function(n) return n + by end end

local counter = setmetatable({ total = 0 }, Counter)
local plus = adder(13)
local top = 0
for i = 1, size do
  counter:add(plus(choose(i)))
  top = math.max(top, counter.total)
end
print("calls", size, counter.total, top)
