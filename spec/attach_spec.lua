-- The callbacks of jit.attach that a session needs, beside those of a program.

local shell = require "spec.support.shell"

local HEAD = [[
local sysprof = require "sysprof"
-- The callbacks that there are, as text.
local function attached()
  local found = {}
  for _, callback in pairs(debug.getregistry()._VMEVENTS or {}) do found[#found + 1] = tostring(callback) end
  table.sort(found)
  return table.concat(found, " ")
end
-- LuaJIT itself may have some.
local ITS_OWN = attached()
local function hot(n)
  local x = 0
  for i = 1, n do x = x + i end
  return x
end
local function start()
  assert(sysprof.start { mode = "C", interval = 1, path = "/dev/null" })
end
local seen = {}
local function traced(what, number, func)
  if what == "start" then seen[#seen + 1] = what .. " " .. number .. " " .. tostring(func == hot) end
  if what == "stop" then seen[#seen + 1] = what .. " " .. number end
end
local recorded = 0
local function recording(number, func, position, depth)
  if func == hot and type(position) == "number" and depth == 0 then recorded = recorded + 1 end
end
jit.off(traced)
jit.off(recording)
jit.flush()
]]

describe("callbacks of jit.attach", function()
  local folder
  before_each(function() folder = shell.folder() end)
  after_each(function() shell.remove(folder) end)

  local function run(program)
    shell.write(folder .. "/case.lua", HEAD .. program)
    local code, out, err = shell.run(folder, "luajit case.lua")
    assert.equal("", err)
    assert.equal(0, code)
    return out
  end

  it("from before a session are called on, and are alone again after it", function()
    local out = run [[
      jit.attach(traced, "trace")
      jit.attach(recording, "record")
      local before = attached()
      start()
      assert(attached() ~= before)
      hot(1000)
      assert(sysprof.stop())
      print(table.concat(seen, ", "), recorded > 0)
      print(attached() == before)
    ]]
    assert.equal("start 1 true, stop 1\ttrue\ntrue\n", out)
  end)

  it("are none after a session where none were before", function()
    local out = run [[
      start()
      print(attached() ~= ITS_OWN)
      hot(1000)
      assert(sysprof.stop())
      print(attached() == ITS_OWN)
    ]]
    assert.equal("true\ntrue\n", out)
  end)

  it("that come during a session stay, and the session goes on without", function()
    local out = run [[
      start()
      jit.attach(traced, "trace")
      jit.attach(recording, "record")
      local during = attached()
      hot(1000)
      assert(sysprof.stop())
      print(table.concat(seen, ", "), recorded > 0)
      print(attached() == during)
      jit.attach(traced)
      jit.attach(recording)
      start()
      hot(1000)
      assert(sysprof.stop())
      print(attached() == ITS_OWN)
    ]]
    assert.equal("start 1 true, stop 1\ttrue\ntrue\ntrue\n", out)
  end)
end)
