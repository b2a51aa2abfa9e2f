-- C functions that call Lua: sort, gsub, load with a reader, __gc, foreach.
local function reader(parts)
  local i = 0
  return function()
    i = i + 1
    return parts[i]
  end
end
return function()
  local t = { 5, 2, 8, 1, 9, 3 }
  table.sort(t)
  table.sort(t, function(a, b) return a > b end)
  string.gsub("hello world", "o", function(c) return c:upper() end)
  string.gsub("hello", ".", { h = "j" })
  string.gsub("hello", "l", setmetatable({}, { __index = function(_, k) return k .. k end }))
  local f = load(reader { "return ", "1 +", " 2" })
  f()
  table.foreach({ 1, 2 }, function(k, v) end)
  table.concat(t, ",")
  string.format("%s %d %q", setmetatable({}, { __tostring = function() return "x" end }), 1, "y")
  tostring(setmetatable({}, { __tostring = function() return "z" end }))
  require("string")
  loadstring("return ...")(1, 2)
end
