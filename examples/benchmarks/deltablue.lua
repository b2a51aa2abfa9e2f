-- DeltaBlue: keeps one-way constraints between variables true. A chain of
-- equalities is planned once and run for each new value of its head, then made
-- and planned again. Expected: running the plan leads, as each plan runs a
-- hundred times: `execute` of the equality, in the line that copies the value
-- along, and the loop of `run` above it, which calls it by a method.

local size = tonumber(arg and arg[1]) or 1500

local VALUES = 100

-- A strength is a number, the strongest the least.
local REQUIRED, PREFERRED, WEAKEST = 1, 3, 9

local function variable(value)
  return { value = value, constraints = {}, by = nil, strength = WEAKEST, mark = 0 }
end

-- Sets a variable from outside.
local Edit = {}
Edit.__index = Edit

function Edit.new(output, strength)
  local edit = setmetatable({ output = output, strength = strength, value = output.value }, Edit)
  table.insert(output.constraints, edit)
  return edit
end

-- Whether it can have its output, which it then takes.
function Edit:choose(mark)
  local output = self.output
  if output.mark == mark or output.strength <= self.strength then return false end
  output.by, output.strength = self, self.strength
  return true
end

function Edit:is_input_known() return true end

function Edit:execute() self.output.value = self.value end

-- Holds two variables equal; it goes to the weaker of them.
local Equality = {}
Equality.__index = Equality

function Equality.new(a, b, strength)
  local equality = setmetatable({ a = a, b = b, strength = strength, input = a, output = b }, Equality)
  table.insert(a.constraints, equality)
  table.insert(b.constraints, equality)
  return equality
end

function Equality:choose(mark)
  local a, b = self.a, self.b
  if a.strength > b.strength then a, b = b, a end
  if b.mark == mark or b.strength <= a.strength then return false end
  self.input, self.output = a, b
  b.by, b.strength = self, math.max(self.strength, a.strength)
  return true
end

function Equality:is_input_known(mark)
  return self.input.mark == mark
end

function Equality:execute()
  self.output.value = self.input.value
end

-- Satisfies `constraint` and then what hangs on its output.
local function satisfy(constraint, mark)
  local todo, n = { constraint }, 1
  while n > 0 do
    local next_one = todo[n]
    n = n - 1
    if next_one:choose(mark) then
      next_one.output.mark = mark
      for _, other in ipairs(next_one.output.constraints) do
        if other ~= next_one then
          n = n + 1
          todo[n] = other
        end
      end
    end
  end
end

-- The constraints that depend on `first`, in an order in which they can run.
local function make_plan(first, mark)
  local plan, todo, n = {}, { first }, 1
  while n > 0 do
    local constraint = todo[n]
    n = n - 1
    local output = constraint.output
    if output.by == constraint and output.mark ~= mark and constraint:is_input_known(mark) then
      plan[#plan + 1] = constraint
      output.mark = mark
      for _, other in ipairs(output.constraints) do
        if other ~= constraint then
          n = n + 1
          todo[n] = other
        end
      end
    end
  end
  return plan
end

local function run(plan)
  for i = 1, #plan do
    plan[i]:execute()
  end
end

local function chain(n)
  local variables = {}
  for i = 1, n do variables[i] = variable(0) end
  for i = 2, n do Equality.new(variables[i - 1], variables[i], REQUIRED) end
  local edit = Edit.new(variables[1], PREFERRED)
  satisfy(edit, 1)
  local plan = make_plan(edit, 2)
  for value = 1, VALUES do
    edit.value = value
    run(plan)
    assert(variables[n].value == value)
  end
  return #plan
end

local planned = 0
for _ = 1, size do planned = planned + chain(1000) end
print(("%d constraints planned, each run %d times"):format(planned, VALUES))
