-- Every metamethod that Lua code can reach, written in Lua: arithmetic,
-- comparison, concatenation, indexing both ways, calls, and tostring.
local size = tonumber((...)) or 2000

local mt = {}
local function new(value) return setmetatable({ value = value }, mt) end
mt.__add = function(a, b) return new(a.value + b.value) end
mt.__sub = function(a, b) return new(a.value - b.value) end
mt.__mul = function(a, b) return new(a.value * b.value % 1000003) end
mt.__unm = function(a) return new(-a.value) end
mt.__eq = function(a, b) return a.value == b.value end
mt.__lt = function(a, b) return a.value < b.value end
mt.__le = function(a, b) return a.value <= b.value end
mt.__concat = function(a, b)
  return (type(a) == "table" and a.value or a) .. "," .. (type(b) == "table" and b.value or b)
end
mt.__call = function(self, n) return self.value + n end
mt.__tostring = function(self) return "<" .. self.value .. ">" end
mt.__index = function(_, key) return #key end
mt.__newindex = function(self, key, value) rawset(self, key, value * 2) end

local total, text = new(0), 0
for i = 1, size do
  local a, b = new(i), new(i % 7)
  local c = (a + b) * (a - b) + -b
  if a == b or a < b or b <= c then total = total + new(1) end
  c.extra = i
  total = total + new((c.extra + c.absent + c(i)) % 1009)
  text = text + #(a .. b) + #tostring(c)
end
print("metamethods", tostring(total), text)
