-- String building, concatenation, buffers, number conversion.
return function()
  local s = ""
  for i = 1, 10 do s = s .. i .. "," end
  local parts = {}
  for i = 1, 10 do parts[#parts + 1] = string.format("%05.2f|%x|%s", i / 3, i, s:sub(i, i)) end
  s = table.concat(parts, ";")
  for a, b in s:gmatch("(%d+)|(%x+)") do parts[#parts + 1] = a .. b end
  s = s:gsub("%d", "n"):upper():lower():reverse()
  return #s
end
