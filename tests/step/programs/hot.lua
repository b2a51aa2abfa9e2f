-- Hot loops and hot calls, long enough to be compiled where that is on.
local clock = { 0 }
local function work(x)
  return x * 2 + 1
end
local function branch(x)
  if x % 3 == 0 then return work(x) end
  return x
end
return function()
  local s = 0
  for i = 1, 300 do
    clock[1] = i
    s = s + work(i)
  end
  for i = 1, 300 do
    clock[1] = 1000 + i
    s = s + branch(i)
  end
  local t = {}
  for i = 1, 200 do
    clock[1] = 2000 + i
    t[i] = tostring(i) .. "x"
  end
  for i = 1, 200 do
    clock[1] = 3000 + i
    s = s + #t[i] + string.byte(t[i])
  end
  for i, v in ipairs(t) do
    clock[1] = 4000 + i
    s = s + #v
  end
  for i, v in pairs(t) do
    clock[1] = 5000 + i
    s = s + #v
  end
  return s
end, clock
