-- Havlak: finds the loops of a control-flow graph: a depth-first search numbers
-- its blocks, then each loop's body is collected from behind and collapsed by
-- union-find. Expected: `find_loops` leads, with the making of its tables per
-- block and the loop over predecessors; then `number_blocks` and `find`.

local rounds = tonumber(arg and arg[1]) or 30

local function connect(graph, from, to)
  table.insert(graph[from].successors, to)
  table.insert(graph[to].predecessors, from)
end

local function add_block(graph)
  graph[#graph + 1] = { successors = {}, predecessors = {} }
  return #graph
end

-- Adds a loop after block `from`, with two loops inside while `depth` lasts;
-- returns the block after it.
local function add_loop(graph, from, depth)
  local header = add_block(graph)
  connect(graph, from, header)
  local last = header
  if depth > 0 then
    last = add_loop(graph, last, depth - 1)
    last = add_loop(graph, last, depth - 1)
  end
  local bottom = add_block(graph)
  connect(graph, last, bottom)
  connect(graph, bottom, header)
  local after = add_block(graph)
  connect(graph, bottom, after)
  return after
end

-- Numbers the blocks that can be reached from 1 in the order of a depth-first
-- search. Returns blocks by number, numbers by block, and the last number below
-- each.
local function number_blocks(graph)
  local blocks, numbers, last = {}, {}, {}
  local path, nexts, depth = { 1 }, { 1 }, 1
  blocks[1], numbers[1] = 1, 1
  local count = 1
  while depth > 0 do
    local block = path[depth]
    local successor = graph[block].successors[nexts[depth]]
    if not successor then
      last[numbers[block]] = count
      depth = depth - 1
    else
      nexts[depth] = nexts[depth] + 1
      if not numbers[successor] then
        count = count + 1
        blocks[count], numbers[successor] = successor, count
        depth = depth + 1
        path[depth], nexts[depth] = successor, 1
      end
    end
  end
  return blocks, numbers, last
end

-- The header that `node` was collapsed into; shortens the way there.
local function find(parents, node)
  local root = node
  while parents[root] ~= root do root = parents[root] end
  while parents[node] ~= root do
    parents[node], node = root, parents[node]
  end
  return root
end

-- How many loops there are, and how many nodes they have by themselves.
local function find_loops(graph)
  local blocks, numbers, last = number_blocks(graph)
  local count = #blocks
  local parents, backs, others = {}, {}, {}
  for w = 1, count do
    parents[w], backs[w], others[w] = w, {}, {}
    for _, block in ipairs(graph[blocks[w]].predecessors) do
      local v = numbers[block]
      local from = (w <= v and v <= last[w]) and backs[w] or others[w]
      from[#from + 1] = v
    end
  end
  local loops, nodes = 0, 0
  for w = count, 1, -1 do
    local body, seen = {}, {}
    for _, v in ipairs(backs[w]) do
      local node = find(parents, v)
      if node ~= w and not seen[node] then
        seen[node] = true
        body[#body + 1] = node
      end
    end
    local at = 1
    while at <= #body do
      for _, y in ipairs(others[body[at]]) do
        local node = find(parents, y)
        if node ~= w and not seen[node] then
          seen[node] = true
          body[#body + 1] = node
        end
      end
      at = at + 1
    end
    if #backs[w] > 0 then
      loops, nodes = loops + 1, nodes + #body
      for _, node in ipairs(body) do parents[node] = w end
    end
  end
  return loops, nodes
end

local graph = {}
local last = add_block(graph)
for _ = 1, 10 do last = add_loop(graph, last, 9) end
local loops, nodes
for _ = 1, rounds do loops, nodes = find_loops(graph) end
print(("%d blocks: %d loops, %d nodes in them"):format(#graph, loops, nodes))
