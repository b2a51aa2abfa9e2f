-- Upvalues, open and closed, loops that make closures, goto-like control flow.
local function counter()
  local n = 0
  return function() n = n + 1; return n end, function(x) n = x end
end
return function()
  local get, set = counter()
  for i = 1, 5 do get(); set(i * 2) end
  local fs = {}
  for i = 1, 5 do fs[i] = function() return i end end
  for i = 1, 5 do fs[i]() end
  local i = 0
  while true do
    i = i + 1
    if i > 5 then break end
    local captured = i
    fs[i] = function() captured = captured + 1; return captured end
  end
  repeat
    local x = fs[1]()
  until x > 4
end
