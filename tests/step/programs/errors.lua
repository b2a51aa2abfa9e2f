-- Errors that unwind through Lua, pcall, xpcall, C functions and metamethods.
local function thrower(n)
  if n == 0 then error("deep") end
  local x = thrower(n - 1)
  return x
end
local function handler(e) return "handled: " .. tostring(e) end
local bad = setmetatable({}, { __index = function(t, k) error({ k }) end })
return function()
  for i = 0, 3 do
    pcall(thrower, i)
    xpcall(function() thrower(i) end, handler)
  end
  pcall(function() local x = nil; return x.field end)
  pcall(function() return 1 + {} end)
  pcall(function() return bad.field end)
  pcall(error)
  pcall(pcall, error, "e")
  pcall(string.rep)
  pcall(string.rep, "x", -1)
  pcall(table.sort, { 3, 2, 1 }, function(a, b) error("in sort") end)
  pcall(string.gsub, "abc", "%w", function(c) error("in gsub") end)
  xpcall(thrower, function(e) error("in handler") end, 1)
  select(2, pcall(pcall))
  pcall(assert, false, "message")
  pcall(setmetatable, 1, {})
  pcall(function() for i = "x", 2 do end end)
end
