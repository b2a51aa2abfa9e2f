-- Coroutines that yield, through iterators, within one another, across pcall,
-- ending by an error, and left unfinished.
local size = tonumber((...)) or 500

local function count(n)
  return coroutine.wrap(function()
    for i = 1, n do coroutine.yield(i) end
  end)
end

local function nested(depth)
  if depth == 0 then
    coroutine.yield(1)
    return
  end
  for value in coroutine.wrap(function() nested(depth - 1) end) do
    coroutine.yield(value + 1)
  end
end

local sum, failed = 0, 0
for i = 1, size do
  for value in count(i % 20) do sum = sum + value end
  for value in coroutine.wrap(function() nested(i % 6) end) do sum = sum + value end

  local guarded = coroutine.create(function(a)
    local ok, b = pcall(function() return coroutine.yield(a) + 1 end)
    if ok then error("end " .. b) end
  end)
  local _, given = coroutine.resume(guarded, i)
  sum = sum + given
  local ok, message = coroutine.resume(guarded, i)
  assert(not ok)
  failed = failed + #message:match("end .*")

  local unfinished = coroutine.create(function() coroutine.yield() end)
  coroutine.resume(unfinished)
end
print("coroutines", sum, failed)
