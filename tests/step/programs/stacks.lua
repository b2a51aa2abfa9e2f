-- The Lua stack grows and moves in the middle of calls.
local function grow(n, ...)
  if n == 0 then return select("#", ...) end
  return (grow(n - 1, n, ...))
end
local function deep(n)
  local a, b, c, d, e, f, g, h = 1, 2, 3, 4, 5, 6, 7, 8
  if n == 0 then return a + h end
  local r = deep(n - 1)
  return r + b + c + d + e + f + g
end
return function()
  coroutine.wrap(function() deep(60) end)()
  coroutine.wrap(function() grow(40) end)()
  coroutine.wrap(function() string.rep("x", 10); deep(20); unpack({}, 1, 200) end)()
  local co = coroutine.create(function(...) local t = { ... }; coroutine.yield(unpack(t, 1, 150)) end)
  coroutine.resume(co, unpack({}, 1, 100))
end
