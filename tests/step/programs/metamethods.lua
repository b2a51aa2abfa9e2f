-- Every metamethod, as Lua functions.
local mt = {}
local function new(v) return setmetatable({ v = v }, mt) end
mt.__index = function(t, k) return k end
mt.__newindex = function(t, k, v) rawset(t, k, v) end
mt.__call = function(self, a, b) return a, b end
mt.__add = function(a, b) return new(1) end
mt.__sub = function(a, b) return new(2) end
mt.__mul = function(a, b) return new(3) end
mt.__div = function(a, b) return new(4) end
mt.__mod = function(a, b) return new(5) end
mt.__pow = function(a, b) return new(6) end
mt.__unm = function(a) return new(7) end
mt.__concat = function(a, b) return "c" end
mt.__eq = function(a, b) return true end
mt.__lt = function(a, b) return true end
mt.__le = function(a, b) return false end
mt.__tostring = function(a) return "s" end
mt.__len = function(a) return 3 end
local function through(t) return t.field end
return function()
  local a, b = new(1), new(2)
  local x = a.missing
  a.set = 1
  a(1, 2)
  x = a + b; x = a - b; x = a * b; x = a / b; x = a % b; x = a ^ b; x = -a
  x = a .. b; x = "s" .. a; x = a .. 1 .. b .. 2
  x = a == b; x = a < b; x = a <= b; x = a > b
  if a == b then x = 1 end
  if a < b then x = 2 end
  if not (a <= b) then x = 3 end
  tostring(a)
  x = through(a)
  local chain = setmetatable({}, { __index = a })
  x = chain.deep
  x = pcall(a, 1)
end
