-- K-nucleotide: how often each short piece occurs in a long sequence of DNA.
-- Expected: `count_pieces` has most of it, in the line that takes a piece with
-- `sub`: it makes or finds a string for each position, where the next line
-- looks it up in a table. `random_sequence` has a little for the input.

local length = tonumber(arg and arg[1]) or 1000000

-- Random, but the same every time.
local function random_sequence(n)
  local letters, seed = { "a", "c", "g", "t", "a" }, 42
  local parts = {}
  for i = 1, n do
    seed = (seed * 3877 + 29573) % 139968
    parts[i] = letters[1 + math.floor(5 * seed / 139968)]
  end
  return table.concat(parts)
end

local function count_pieces(sequence, size)
  local counts = {}
  for at = 1, #sequence - size + 1 do
    local piece = sequence:sub(at, at + size - 1)
    counts[piece] = (counts[piece] or 0) + 1
  end
  return counts
end

local function most_frequent(counts)
  local best, n, different = nil, 0, 0
  for piece, count in pairs(counts) do
    different = different + 1
    if count > n or (count == n and piece < best) then best, n = piece, count end
  end
  return best, n, different
end

local sequence = random_sequence(length)
for _, size in ipairs { 1, 2, 3, 4, 6, 8, 12 } do
  local best, n, different = most_frequent(count_pieces(sequence, size))
  print(("pieces of %2d: %6d different, %s %d times"):format(size, different, best, n))
end
