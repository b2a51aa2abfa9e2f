-- Control flow: every kind of loop and branch, nested, with breaks.
return function()
  local n = 0
  for i = 1, 3 do
    for j = i, 1, -1 do
      if i == j then n = n + 1
      elseif i > j then n = n + 2
      else n = n + 3
      end
    end
  end
  for x = 0, 1, 0.25 do n = n + x end
  local i = 0
  while i < 5 do
    i = i + 1
    if i == 2 then n = n + 1 else n = n - 1 end
    local j = 0
    repeat
      j = j + 1
      if j > i then break end
      n = n + (j % 2 == 0 and 1 or 2)
    until j == 3
    if not (n > 0 or i < 4) then break end
  end
  local a, b, c = 1, nil, false
  n = a and b or c or n
  n = (a or b) and (c or 3)
  if a == nil then n = 1 end
  if b == nil then n = 2 end
  if c == false then n = 3 end
  if a == 1 and n ~= "x" then n = 4 end
  do local t = { n, n, n }; for k = 1, #t do if t[k] ~= n then break end end end
  return n
end
