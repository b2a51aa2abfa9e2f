-- start() and stop(): what they return, the defaults, one session at a time.

local sysprof = require "sysprof"
local shell = require "spec.support.shell"
local work = require "spec.support.work"

local EINVAL = 22

describe("start and stop", function()
  local folder
  before_each(function() folder = shell.folder() end)
  after_each(function()
    sysprof.stop()
    shell.remove(folder)
  end)

  it("return true and nothing else", function()
    assert.same({ true }, { sysprof.start() })
    assert.same({ true }, { sysprof.stop() })
  end)

  it("take no options, no table, or an empty one, with the same meaning", function()
    for _, arguments in ipairs { { n = 0 }, { n = 1 }, { n = 1, {} } } do
      assert.is_true(sysprof.start(unpack(arguments, 1, arguments.n)))
      local report = sysprof.report()
      assert.equal("D", report.mode)
      assert.equal(10, report.interval)
      assert.is_true(sysprof.stop())
    end
  end)

  it("write no file in mode D without a path", function()
    local code, out, err = shell.lua(folder, [[
      local sysprof = require "sysprof"
      assert(sysprof.start())
      assert(sysprof.stop())]])
    assert.equal("", err)
    assert.equal(0, code)
    assert.equal("", out)
    assert.same({}, shell.names(folder))
  end)

  it("write sysprof.bin in modes L and C without a path", function()
    for _, mode in ipairs { "L", "C" } do
      local code, _, err = shell.lua(folder, ([[
        local sysprof = require "sysprof"
        assert(sysprof.start { mode = "%s" })
        assert(sysprof.stop())]]):format(mode))
      assert.equal("", err)
      assert.equal(0, code)
      assert.equal("ljp\3", shell.read(folder .. "/sysprof.bin"):sub(1, 4))
      os.remove(folder .. "/sysprof.bin")
    end
  end)

  it("write the file that `path` names, over what was there", function()
    local path = shell.write(folder .. "/profile", ("old "):rep(100000))
    assert.is_true(sysprof.start { mode = "C", path = path })
    assert.is_true(sysprof.stop())
    local text = shell.read(path)
    assert.equal("ljp\3", text:sub(1, 4))
    assert.is_nil(text:find("old ", 1, true))
  end)

  it("refuse a second session and leave the first alone", function()
    assert.is_true(sysprof.start { interval = 1 })
    local ok, message, errno = sysprof.start { mode = "C", path = folder .. "/second" }
    assert.is_nil(ok)
    assert.matches("^profiler is running already", message)
    assert.equal(EINVAL, errno)
    assert.same({}, shell.names(folder))

    work.until_samples(sysprof, 3)
    assert.equal("D", sysprof.report().mode)
    assert.is_true(sysprof.stop())
  end)

  it("refuse to stop what is not running", function()
    for _ = 1, 2 do
      local ok, message, errno = sysprof.stop()
      assert.is_nil(ok)
      assert.matches("^profiler is not running", message)
      assert.equal(EINVAL, errno)
      assert.is_true(sysprof.start())
      assert.is_true(sysprof.stop())
    end
  end)

  it("refuse a stop before the first start", function()
    local code, out, err = shell.lua(folder, 'print(require("sysprof").stop())')
    assert.equal("", err)
    assert.equal(0, code)
    assert.matches("^nil\tprofiler is not running[^\t]*\t22\n$", out)
  end)

  it("work from inside a coroutine", function()
    coroutine.wrap(function() assert.is_true(sysprof.start { mode = "C", path = folder .. "/c", interval = 1 }) end)()
    work.until_samples(sysprof, 3)
    coroutine.wrap(function() assert.is_true(sysprof.stop()) end)()
  end)

  it("can be repeated many times", function()
    for _ = 1, 50 do
      assert.is_true(sysprof.start { mode = "C", path = folder .. "/again", interval = 0.5 })
      assert.is_true(sysprof.stop())
    end
  end)
end)
