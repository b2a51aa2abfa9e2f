-- Plain calls, returns of none, one and many results, recursion.
local function none() end
local function one(x) return x + 1 end
local function many(a, b) return b, a, a + b end
local function deep(n)
  if n == 0 then return 0 end
  return 1 + deep(n - 1)
end
local function fib(n)
  if n < 2 then return n end
  return fib(n - 1) + fib(n - 2)
end
return function()
  for i = 1, 5 do
    none()
    local x = one(i)
    local a, b, c = many(x, i)
    local t = { many(c, b) }
    none(many(a, #t))
  end
  many(
    one(
      1
    ),
    one(2)
  )
  local t = {
    one(1),
    many(1,
      2),
  }
  deep(30)
  fib(9)
end
