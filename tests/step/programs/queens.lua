-- Six queens, by recursion over tables.
local N = 6
local clock = { 0 }
local function fits(rows, row, column)
  for r = 1, row - 1 do
    local c = rows[r]
    if c == column or c - r == column - row or c + r == column + row then return false end
  end
  return true
end
local function place(rows, row)
  if row > N then return 1 end
  local count = 0
  for column = 1, N do
    clock[1] = clock[1] + 1
    if fits(rows, row, column) then
      rows[row] = column
      count = count + place(rows, row + 1)
    end
  end
  return count
end
return function() return place({}, 1) end, clock
