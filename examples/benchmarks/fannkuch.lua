-- Fannkuch: for each permutation of 1..n, how often its head must be reversed
-- until a 1 leads. Expected: `flips` has nearly all of it, in the line that swaps
-- two elements, the only one in three loops; making the next permutation, in
-- `next_permutation`, takes a few moves where `flips` takes dozens.

local size = tonumber(arg and arg[1]) or 10

-- How many reversals `permutation` takes; `work` is room for a copy.
local function flips(permutation, work, n)
  for i = 1, n do work[i] = permutation[i] end
  local count = 0
  local head = work[1]
  while head ~= 1 do
    local low, high = 1, head
    while low < high do
      work[low], work[high] = work[high], work[low]
      low, high = low + 1, high - 1
    end
    count = count + 1
    head = work[1]
  end
  return count
end

-- Turns to the next permutation by rotations of its beginning, which `turns`
-- counts; false after the last one.
local function next_permutation(permutation, turns, n)
  for last = 2, n do
    local first = permutation[1]
    for i = 1, last - 1 do permutation[i] = permutation[i + 1] end
    permutation[last] = first
    turns[last] = turns[last] + 1
    if turns[last] < last then return true end
    turns[last] = 0
  end
  return false
end

local function fannkuch(n)
  local permutation, turns, work = {}, {}, {}
  for i = 1, n do permutation[i], turns[i], work[i] = i, 0, 0 end
  local checksum, most, sign = 0, 0, 1
  repeat
    local count = flips(permutation, work, n)
    checksum = checksum + sign * count
    sign = -sign
    if count > most then most = count end
  until not next_permutation(permutation, turns, n)
  return checksum, most
end

local checksum, most = fannkuch(size)
print(("checksum %d, most flips of %d: %d"):format(checksum, size, most))
