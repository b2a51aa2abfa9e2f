-- Tail calls of Lua functions, built-ins and C functions.
local function loop(n, acc)
  if n == 0 then return acc end
  return loop(n - 1, acc + n)
end
local function even(n)
  if n == 0 then return true end
  return odd(n - 1)
end
function odd(n)
  if n == 0 then return false end
  return even(n - 1)
end
local function builtin(x) return tostring(x) end
local function cfunction(x) return string.format("%d", x) end
local function vararg(...) return select("#", ...) end
local function tailvararg(...) return vararg(...) end
return function()
  loop(20, 0)
  even(11)
  for i = 1, 4 do
    builtin(i)
    builtin("x")
    cfunction(i)
    vararg(i, i)
    tailvararg(1, 2, i)
  end
end
