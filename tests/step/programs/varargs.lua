-- Vararg functions: no, few and many extra arguments, passed on and packed.
local function count(...) return select("#", ...) end
local function pass(...) return ... end
local function fixed(a, b, ...) return b, ... end
local function sum(...)
  local s = 0
  for i = 1, select("#", ...) do s = s + (select(i, ...)) end
  return s
end
local function pack(...) return { ... } end
return function()
  count()
  count(1, 2, 3)
  pass(pass(pass(1, 2), 3), 4)
  fixed(1)
  fixed(1, 2, 3, 4)
  sum(1, 2, 3, 4, 5)
  local t = pack(fixed(1, 2, 3))
  sum(unpack(t))
  local many = {}
  for i = 1, 60 do many[i] = i end
  sum(unpack(many))
  pack(pass(unpack(many)))
end
