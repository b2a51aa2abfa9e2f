-- The collector at work: full collections and steps from Lua, weak tables,
-- finalizers, and garbage of every kind in between.
local size = tonumber((...)) or 60

local finalized = 0
local function finalizer() finalized = finalized + 1 end

local made, kept = 0, {}
for i = 1, size do
  local weak = setmetatable({}, { __mode = "k" })
  for k = 1, 40 do
    local object = { k, tostring(k), function() return object end }
    weak[object] = true
    kept[(i * 40 + k) % 97] = object
    local proxy = newproxy(true)
    getmetatable(proxy).__gc = finalizer
    made = made + 1
  end
  if i % 3 == 0 then collectgarbage("collect") else collectgarbage("step", 50) end
end
-- Twice: what a finalizer kept alive goes in the second.
collectgarbage()
collectgarbage()
local left = 0
for _ in pairs(kept) do left = left + 1 end
print("collect", made, finalized, left)
