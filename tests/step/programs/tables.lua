-- Tables: growth, resizing, holes, constructors, length.
return function()
  local t = {}
  for i = 1, 40 do t[i] = i end
  for i = 1, 40 do t["k" .. i] = i end
  local u = { 1, 2, 3, x = 1, y = { z = 2 } }
  for i = 1, 10 do u = { u, i, [i * 100] = i } end
  local n = #t
  t[n + 1] = 1
  t[#t] = nil
  for i = 40, 1, -1 do t[i] = nil end
  local h = {}
  for i = 1, 20 do h[i * 1000] = i; n = n + #h end
  local up = 1
  local function set() up = up + 1; return up end
  for i = 1, 5 do set() end
  return n
end
