-- Errors thrown and caught in a loop: strings, tables, a runtime error, through
-- C, nested, and with a message handler.
local size = tonumber((...)) or 2000

local function thrower(kind)
  if kind == 0 then error("text", 0) end
  if kind == 1 then error({ code = 7 }) end
  if kind == 2 then return nil + kind end
  if kind == 3 then return (("x"):gsub("x", function() error("inside gsub", 0) end)) end
  return kind
end

local function nested(depth, kind)
  if depth == 0 then return thrower(kind) end
  local result = nested(depth - 1, kind)
  return result
end

local caught, fine, codes, handled = 0, 0, 0, 0
for i = 1, size do
  local kind = i % 6
  local ok, value = pcall(nested, i % 9, kind)
  if ok then
    fine = fine + value
  else
    caught = caught + 1
    if type(value) == "table" then codes = codes + value.code end
  end
  local again = xpcall(function()
    local inner = pcall(error, "inner")
    assert(not inner)
    error("outer", 0)
  end, function(message)
    handled = handled + #message
    return message
  end)
  assert(not again)
end
print("errors", caught, fine, codes, handled)
