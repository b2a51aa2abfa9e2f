-- Up-recursion and down-recursion, by one call and by two.
local clock = { 0 }
local function sum(t, n)
  if n == 0 then
    return 0
  end
  clock[1] = clock[1] + 1
  local x = t[n]
  local rest = sum(t, n - 1)
  return x + rest
end
local function fib(n)
  if n < 2 then
    return n
  end
  clock[1] = clock[1] + 1
  return fib(n - 1)
    + fib(n - 2)
end
local function tree(n)
  if n == 0 then return {} end
  clock[1] = clock[1] + 1
  return { tree(n - 1), tree(n - 1) }
end
local function count(node)
  local left, right = node[1], node[2]
  clock[1] = clock[1] + 1
  if not left then return 1 end
  return 1 + count(left)
    + count(right)
end
return function()
  local t = {}
  for i = 1, 90 do t[i] = i end
  local s = 0
  for i = 1, 6 do s = s + sum(t, 80) end
  s = s + fib(11)
  return s + count(tree(6))
end, clock
