-- Deep recursion: a stack that grows while it is called into, calls that are no
-- tail calls, two functions that call each other, and overflow that is caught.
local size = tonumber((...)) or 20

local function depth(n)
  if n == 0 then return 0 end
  return 1 + depth(n - 1)
end
local function fib(n)
  if n < 2 then return n end
  return fib(n - 1) + fib(n - 2)
end
local even, odd
function even(n) if n == 0 then return true end local r = odd(n - 1) return r end
function odd(n) if n == 0 then return false end local r = even(n - 1) return r end
local function forever(n) return 1 + forever(n + 1) end

local sum = 0
for i = 1, size do
  sum = sum + depth(i * 100) + fib(12 + i % 6)
  if even(i * 50) then sum = sum + 1 end
  -- In a coroutine, so that each round grows a stack of its own.
  sum = sum + coroutine.wrap(depth)(i * 100)
end
local ok, message = pcall(forever, 1)
print("recursion", sum, ok, (message:match("stack overflow")))
