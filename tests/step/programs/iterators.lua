-- pairs, ipairs, next, closures and tables as iterators.
local function range(n)
  local i = 0
  return function()
    i = i + 1
    if i <= n then return i, i * 2 end
  end
end
local function stateless(max, i)
  if i < max then return i + 1 end
end
local callable = setmetatable({}, { __call = function(self, s, i) if i < s then return i + 1 end end })
return function()
  local t = { 1, 2, 3, a = 1, b = 2 }
  local n = 0
  for k, v in pairs(t) do n = n + 1 end
  for i, v in ipairs(t) do n = n + v end
  for k, v in next, t do n = n + 1 end
  for a, b in range(4) do n = n + b end
  for i in stateless, 4, 0 do n = n + i end
  for i in callable, 3, 0 do n = n + i end
  for w in string.gmatch("a bb ccc", "%a+") do n = n + #w end
  return n
end
