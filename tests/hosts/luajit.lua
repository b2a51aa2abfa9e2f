-- Work for a stand-alone LuaJIT: a callback inside a coroutine.

local profiled = require "profiled"

local function less(a, b)
  return a < b
end

local function arrange(list)
  table.sort(list, less)
end

local turns = coroutine.wrap(function()
  while true do
    local list = {}
    for i = 1, 1000 do list[i] = i * 7919 % 1009 end
    arrange(list)
    coroutine.yield(list[1])
  end
end)

profiled.start()
repeat assert(turns() == 1) until profiled.enough()
profiled.stop()
