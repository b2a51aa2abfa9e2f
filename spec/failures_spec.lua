-- When start() fails: path, reason and errno are said, and nothing is left.

local sysprof = require "sysprof"
local shell = require "spec.support.shell"
local leftovers = require "spec.support.leftovers"
local work = require "spec.support.work"

local ENOENT, ENOTDIR, EISDIR, ENOSPC = 2, 20, 21, 28

describe("a file that can't be written", function()
  local folder
  before_each(function() folder = shell.folder() end)
  after_each(function()
    sysprof.stop()
    shell.remove(folder)
  end)

  local function fails(path, reason, wanted)
    for _, mode in ipairs { "L", "C" } do
      local ok, message, errno = sysprof.start { mode = mode, path = path }
      assert.is_nil(ok)
      assert.is_truthy(message:find(path, 1, true), message)
      assert.is_truthy(message:find(reason, 1, true), message)
      assert.equal(wanted, errno)
      assert.is_false(sysprof.report().running)
    end
  end

  it("for want of its folder", function()
    fails(folder .. "/absent/profile", "No such file or directory", ENOENT)
  end)

  it("because it is a folder", function()
    fails(folder, "Is a directory", EISDIR)
  end)

  it("because a part of its path is a file", function()
    shell.write(folder .. "/file", "")
    fails(folder .. "/file/profile", "Not a directory", ENOTDIR)
  end)

  it("because the disk is full, is said at the latest by stop", function()
    local ok, message, errno = sysprof.start { mode = "C", path = "/dev/full", interval = 1 }
    if ok then
      work.until_samples(sysprof, 20)
      ok, message, errno = sysprof.stop()
    end
    assert.is_nil(ok)
    assert.is_truthy(message:find("/dev/full", 1, true), message)
    assert.is_truthy(message:find("No space left on device", 1, true), message)
    assert.equal(ENOSPC, errno)
    assert.is_false(sysprof.report().running)
  end)
end)

describe("nothing is left over", function()
  local folder
  setup(function() folder = shell.folder() end)
  teardown(function()
    sysprof.stop()
    shell.remove(folder)
  end)

  local failing = {
    ["an unknown option"] = { speed = 1 },
    ["a wrong type"] = { mode = "C", interval = {} },
    ["an interval of 0"] = { mode = "C", interval = 0 },
    ["a file that can't be opened"] = { mode = "C", path = "/proc/absent/profile" },
    ["an interval that the clock can't do"] = { mode = "C", interval = 1e-9 },
  }
  for name, options in pairs(failing) do
    it("after " .. name, function()
      local before = leftovers()
      for _ = 1, 5 do assert.is_nil((sysprof.start(options))) end
      assert.same(before, leftovers())
    end)
  end

  it("after a stop, in any mode and with any clock", function()
    for _, mode in ipairs { "D", "L", "C" } do
      for _, clock in ipairs { "auto", "thread", "itimer", "wall" } do
        local before = leftovers()
        assert.is_true(sysprof.start { mode = mode, clock = clock, path = folder .. "/profile", interval = 5 })
        assert.is_true(sysprof.stop())
        assert.same(before, leftovers())
      end
    end
  end)

  it("after a second start was refused, but the first session", function()
    assert.is_true(sysprof.start { mode = "C", path = folder .. "/first" })
    local before = leftovers()
    assert.is_nil((sysprof.start { mode = "C", path = folder .. "/second" }))
    assert.same(before, leftovers())
    assert.is_true(sysprof.stop())
  end)

  it("after a disk that was full", function()
    local before = leftovers()
    if sysprof.start { mode = "C", path = "/dev/full", interval = 1 } then
      work.until_samples(sysprof, 5)
      sysprof.stop()
    end
    assert.same(before, leftovers())
  end)
end)
