-- `sysprof record` around a real LuaJIT: the program's arguments, input, output
-- and end are its own, and its profile is whole.

local shell = require "spec.support.shell"
local profile = require "spec.support.profile"

describe("sysprof record", function()
  local folder, program, path
  setup(function()
    folder = shell.folder()
    path = folder .. "/profile"
    program = shell.write(folder .. "/program.lua", [[
      local work = 0
      local function busy() for i = 1, 3e6 do work = (work + i) % 1000003 end end
      local began = os.clock()
      while os.clock() - began < 0.3 do busy() end
      io.write(table.concat({ ... }, "|"), "\n", io.read "*a")
      io.stderr:write "on stderr\n"
      assert(not os.getenv "LUA_INIT")
      os.exit(tonumber((...)))
    ]])
  end)
  teardown(function() shell.remove(folder) end)

  it("leaves arguments, input, output and exit code alone", function()
    local code, out, err = shell.run(folder, ([[printf 'from stdin' | sysprof record -o %s --interval 1 -- luajit %s 7 'a b' '$c']])
      :format(path, program))
    assert.equal(7, code)
    assert.equal("7|a b|$c\nfrom stdin", out)
    assert.matches("^on stderr\n", err)
    assert.is_truthy(err:find(path, 1, true), err)
    local info = profile.info(path)
    assert.is_true(info.complete)
    assert.equal("C", info.mode)
    assert.is_true(info.samples > 0)
  end)

  it("records in each mode", function()
    for _, mode in ipairs { "D", "L", "C" } do
      os.remove(path)
      local code, _, err = shell.run(folder, ("sysprof record -o %s --mode %s --interval 1 -- luajit %s 0")
        :format(path, mode, program))
      assert.equal(0, code, err)
      assert.equal(mode, profile.info(path).mode)
    end
  end)

  it("names the function that was busy", function()
    local code, _, err = shell.run(folder, ("sysprof record -o %s --interval 1 -- luajit -joff %s 0"):format(path, program))
    assert.equal(0, code, err)
    local totals = profile.totals(path)
    assert.is_truthy(totals.busy)
    assert.is_true(totals.busy > 50, "busy has " .. totals.busy)
  end)

  it("says so when the recording can't be started, and runs nothing", function()
    local code, out, err = shell.run(folder, ("sysprof record -o /proc/absent/profile -- luajit %s 0"):format(program))
    assert.equal(125, code)
    assert.equal("", out)
    assert.is_truthy(err:find("/proc/absent/profile: No such file or directory", 1, true), err)
  end)

  it("says so when the module is not found", function()
    local code, out, err = shell.run(folder, ("LUA_PATH=/absent/?.lua sysprof record -o %s -- luajit %s 0"):format(path, program))
    assert.equal(125, code)
    assert.equal("", out)
    assert.is_truthy(err:find("sysprof", 1, true), err)
  end)
end)
