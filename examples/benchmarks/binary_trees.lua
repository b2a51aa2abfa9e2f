-- Binary trees: makes and walks many short-lived trees beside one that stays.
-- Expected: nearly all time is for memory. `bottom_up` first, in its line that
-- makes the table of an inner node, with the collector's work that this brings;
-- `count`, which reads what is not in the cache any more, behind it.

local deepest = tonumber(arg and arg[1]) or 15

local function bottom_up(depth)
  if depth == 0 then return {} end
  local left, right = bottom_up(depth - 1), bottom_up(depth - 1)
  return { left, right }
end

local function count(tree)
  if not tree[1] then return 1 end
  return 1 + count(tree[1]) + count(tree[2])
end

local function round(trees, depth)
  local nodes = 0
  for _ = 1, trees do nodes = nodes + count(bottom_up(depth)) end
  return nodes
end

local stays = bottom_up(deepest)
for depth = 4, deepest, 2 do
  local trees = 2 ^ (deepest - depth + 4)
  print(("%d trees of depth %d: %d nodes"):format(trees, depth, round(trees, depth)))
end
print(("the one that stays: %d nodes"):format(count(stays)))
