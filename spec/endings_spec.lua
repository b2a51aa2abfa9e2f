-- However a profiled program ends, its profile is whole, or whole but for the
-- last second where it was killed; and a fork's child has none.

local shell = require "spec.support.shell"
local profile = require "spec.support.profile"

describe("a program that ends without stop", function()
  local folder, path
  setup(function()
    folder = shell.folder()
    path = folder .. "/profile"
  end)
  teardown(function() shell.remove(folder) end)

  -- Returns what the program counted at its end, and the profile's summary.
  local function ended(way, samples, wanted)
    local code, out, err = shell.run(".", ("luajit spec/support/ended.lua %s %d %s")
      :format(path, samples, shell.quote(way)))
    assert.equal(wanted, code, err)
    return tonumber(out), profile.info(path)
  end

  for way, code in pairs {
    ["end"] = 0, exit = 3, ["exit, state closed"] = 3, error = 1, ["error in a coroutine"] = 1,
  } do
    it("leaves a whole profile, by " .. way, function()
      local counted, info = ended(way, 100, code)
      assert.is_true(info.complete)
      assert.is_true(info.samples >= counted)
    end)
  end

  it("leaves all but the last second, by SIGKILL", function()
    local counted, info = ended("SIGKILL", 3000, 128 + 9)
    assert.is_false(info.complete)
    -- At 1 ms a second is 1000 samples.
    assert.is_true(info.samples >= counted - 1000, info.samples .. " of " .. counted)
    assert.is_true(info.samples > 0)
  end)

  it("leaves all but the last second, by SIGTERM", function()
    local counted, info = ended("SIGTERM", 3000, 128 + 15)
    assert.is_true(info.samples >= counted - 1000, info.samples .. " of " .. counted)
  end)
end)

describe("a session's end", function()
  local folder
  setup(function() folder = shell.folder() end)
  teardown(function() shell.remove(folder) end)

  it("leaves no tick without a stack", function()
    -- A sample of so deep a stack takes longer than an interval, so that ticks
    -- wait for the next one nearly all the time.
    local program = shell.write(folder .. "/program.lua", [[
      local sysprof = require "sysprof"
      local function deep(n)
        if n > 0 then return (deep(n - 1)) end
        local sum = 0
        for i = 1, 1e5 do sum = sum + i % 7 end
        return sum
      end
      local samples = 0
      for _ = 1, 20 do
        assert(sysprof.start { mode = "C", interval = 0.02, path = "profile" })
        deep(1500)
        assert(sysprof.stop())
        local report = sysprof.report()
        samples = samples + report.samples
        for reason, n in pairs(report.without_stack) do
          if n > 0 then print(reason, n) end
        end
      end
      assert(samples > 0)
    ]])
    local code, out, err = shell.run(folder, "luajit " .. program)
    assert.equal(0, code, err)
    assert.equal("", out)
  end)
end)

describe("a fork", function()
  local folder
  setup(function() folder = shell.folder() end)
  teardown(function() shell.remove(folder) end)

  it("has a child without a session, and leaves the parent's alone", function()
    local path = folder .. "/profile"
    local code, out, err = shell.run(".", "luajit spec/support/forked.lua " .. path)
    assert.equal("", err)
    assert.equal(0, code)
    local samples = out:match("^child running false\nchild samples 0\nchild descriptors 0\n"
      .. "child stop nil\nchild start true\nchild stop true\n"
      .. "child's status 0\nparent samples (%d+)\n$")
    assert.is_truthy(samples, out)
    local info = profile.info(path)
    assert.is_true(info.complete)
    assert.equal(tonumber(samples), info.samples)
    assert.is_true(profile.info(path .. ".child").samples >= 50)
  end)
end)
