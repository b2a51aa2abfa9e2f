-- Coroutines: entering, yielding, resuming, ending, erring, nested.
local function gen(n)
  return coroutine.wrap(function()
    for i = 1, n do coroutine.yield(i) end
    return "end"
  end)
end
local function nested(depth)
  if depth == 0 then
    coroutine.yield("bottom")
    return 0
  end
  local co = coroutine.create(nested)
  local ok, v = coroutine.resume(co, depth - 1)
  coroutine.yield(v)
  coroutine.resume(co)
  return depth
end
return function()
  local g = gen(3)
  for i = 1, 4 do g() end
  local co = coroutine.create(nested)
  while coroutine.status(co) ~= "dead" do coroutine.resume(co, 3) end
  local bad = coroutine.create(function(x) coroutine.yield(x); error("in co") end)
  coroutine.resume(bad, 1)
  coroutine.resume(bad)
  coroutine.resume(bad)
  pcall(coroutine.wrap(function() error("wrapped") end))
  local through = coroutine.wrap(function()
    pcall(function() coroutine.yield(1) end)
    table.sort({ 3, 1, 2 }, function(a, b) return a < b end)
    for i in gen(2) do coroutine.yield(i) end
  end)
  for i = 1, 5 do pcall(through) end
  coroutine.running()
end
