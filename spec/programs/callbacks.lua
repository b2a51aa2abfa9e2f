-- Built-ins that call Lua: gsub with a function, a chunk reader, sort, and
-- these within one another.
local size = tonumber((...)) or 300

local text = ("the quick brown fox jumps over the lazy dog "):rep(size)
local words, letters = 0, 0
local turned = text:gsub("%a+", function(word)
  words = words + 1
  local chars = {}
  word:gsub(".", function(c)
    letters = letters + 1
    chars[#chars + 1] = c
  end)
  table.sort(chars, function(a, b) return a > b end)
  return table.concat(chars)
end)

local pieces = { "local a = ...; ", "return ", "a + ", "1" }
local total = 0
for i = 1, size do
  local at = 0
  local chunk = assert(load(function()
    at = at + 1
    return pieces[at]
  end))
  total = total + chunk(i)
end
print("callbacks", words, letters, #turned, turned:sub(1, 44), total)
