-- Hot loops and hot calls, long enough to be compiled where that is on.
local function work(x)
  return x * 2 + 1
end
local function branch(x)
  if x % 3 == 0 then return work(x) end
  return x
end
return function()
  local s = 0
  for i = 1, 300 do s = s + work(i) end
  for i = 1, 300 do s = s + branch(i) end
  local t = {}
  for i = 1, 200 do t[i] = tostring(i) .. "x" end
  for i = 1, 200 do s = s + #t[i] + string.byte(t[i]) end
  for _, v in ipairs(t) do s = s + #v end
  for _, v in pairs(t) do s = s + #v end
  return s
end
