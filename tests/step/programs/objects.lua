-- Objects: methods, inheritance through __index tables and functions, closures
-- as methods, tostring and comparison of objects.
local Base = {}
Base.__index = Base
function Base.new(class, value) return setmetatable({ value = value }, class) end
function Base:get() return self.value end
function Base:describe() return self:name() .. "=" .. self:get() end
function Base:name() return "base" end
local Derived = setmetatable({}, { __index = Base })
Derived.__index = function(self, key) return Derived[key] end
Derived.__eq = function(a, b) return a:get() == b:get() end
Derived.__lt = function(a, b) return a:get() < b:get() end
Derived.__tostring = function(self) return self:describe() end
function Derived:name() return "derived" end
function Derived:get() return Base.get(self) * 2 end
return function()
  local all = {}
  for i = 3, 1, -1 do all[#all + 1] = Base.new(i % 2 == 0 and Base or Derived, i) end
  local text = ""
  for _, object in ipairs(all) do text = text .. object:describe() .. ";" end
  local a, b = Base.new(Derived, 1), Base.new(Derived, 1)
  text = text .. tostring(a) .. tostring(a == b) .. tostring(a < b)
  return text
end
