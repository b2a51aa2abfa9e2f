-- What `require "sysprof"` gives, and the global `misc.sysprof`.

local shell = require "spec.support.shell"

describe("the module", function()
  local folder
  setup(function() folder = shell.folder() end)
  teardown(function() shell.remove(folder) end)

  -- Runs Lua in a process of its own, where nothing was required yet.
  local function prints(wanted, source)
    local code, out, err = shell.lua(folder, source)
    assert.equal("", err)
    assert.equal(0, code)
    assert.equal(wanted, out)
  end

  it("is start, stop, report and a version", function()
    prints("report=function start=function stop=function version=string", [[
      local names = {}
      for name, value in pairs(require "sysprof") do names[#names + 1] = name .. "=" .. type(value) end
      table.sort(names)
      io.write(table.concat(names, " "))]])
  end)

  it("is misc.sysprof as well", function()
    prints("true", [[
      local sysprof = require "sysprof"
      io.write(tostring(misc.sysprof.start == sysprof.start
        and misc.sysprof.stop == sysprof.stop and misc.sysprof.report == sysprof.report))]])
  end)

  it("is added to a misc that has none", function()
    prints("mine true", [[
      misc = { other = "mine" }
      local sysprof = require "sysprof"
      io.write(misc.other, " ", tostring(misc.sysprof.start == sysprof.start))]])
  end)

  it("leaves a host's own misc.sysprof alone", function()
    prints("the host's function", [[
      misc = { sysprof = "the host's" }
      io.write(misc.sysprof, " ", type(require("sysprof").start))]])
  end)

  it("leaves a misc alone that is no table", function()
    prints("7 function", [[
      misc = 7
      io.write(misc, " ", type(require("sysprof").start))]])
  end)

  it("works where globals are guarded", function()
    prints("function", [[
      setmetatable(_G, {
        __index = function(_, name) error("undeclared " .. name) end,
        __newindex = function(_, name) error("undeclared " .. name) end,
      })
      io.write(type(require("sysprof").start))]])
  end)

  it("can be loaded again while a session runs, which goes on", function()
    prints("true nil profiler is running already", [[
      assert(require("sysprof").start())
      package.loaded.sysprof, package.loaded.sysprof_core, misc = nil, nil, nil
      local again = require "sysprof"
      -- Twice: what has a finalizer is freed by the second.
      collectgarbage()
      collectgarbage()
      local ok, message = again.start()
      io.write(tostring(again.report().running), " ", tostring(ok), " ", message)
      assert(again.stop())]])
  end)
end)
