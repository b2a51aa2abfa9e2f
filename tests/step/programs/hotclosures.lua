-- Traces made for a prototype only: many closures of it, called and inlined.
local clock = { 0 }
local function counter(step)
  local n = 0
  return function(t)
    n = n + step
    t.sum = t.sum + n
    return t.sum
  end
end
local function apply(f, t)
  local x = f(t)
  return x + t.sum
end
return function()
  local t = { sum = 0 }
  local s = 0
  for i = 1, 200 do
    clock[1] = clock[1] + 1
    local f = counter(i)
    s = s + f(t)
    s = s + apply(f, t)
  end
  return s
end, clock
