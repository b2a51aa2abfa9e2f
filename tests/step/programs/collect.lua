-- Collection in the middle of things, finalizers.
local finalized = 0
local function garbage(n)
  for i = 1, n do
    local p = newproxy(true)
    getmetatable(p).__gc = function() finalized = finalized + 1 end
  end
end
return function()
  collectgarbage("stop")
  garbage(3)
  collectgarbage()
  garbage(2)
  collectgarbage("collect")
  collectgarbage("count")
  collectgarbage("restart")
  return finalized
end
