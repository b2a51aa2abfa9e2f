-- report(): before, during and after a session, and that its numbers add up.

local sysprof = require "sysprof"
local shell = require "spec.support.shell"
local work = require "spec.support.work"

local STATES = { "INTERP", "LFUNC", "FFUNC", "CFUNC", "GC", "EXIT", "RECORD", "OPT", "ASM", "TRACE" }

local function names(t)
  local list = {}
  for name in pairs(t) do list[#list + 1] = name end
  table.sort(list)
  return list
end

local function sum(t)
  local total = 0
  for _, n in pairs(t) do total = total + n end
  return total
end

-- Holds for every report.
local function consistent(report)
  local states = { unpack(STATES) }
  table.sort(states)
  assert.same(states, names(report.vmstate))
  for _, counters in ipairs { report.vmstate, report.without_stack, { report.samples, report.overruns } } do
    for name, n in pairs(counters) do
      assert.is_true(n >= 0 and n % 1 == 0, name .. " is " .. n)
    end
  end
  assert.equal(report.samples, sum(report.vmstate))
  assert.is_true(sum(report.without_stack) <= report.samples)
  assert.is_true(report.overruns <= report.samples)
  return report
end

describe("report", function()
  local folder
  setup(function() folder = shell.folder() end)
  teardown(function() shell.remove(folder) end)
  after_each(function() sysprof.stop() end)

  it("is all zero before the first session", function()
    local code, out, err = shell.lua(folder, [[
      local report = require("sysprof").report()
      local sum = 0
      for _, n in pairs(report.vmstate) do sum = sum + n end
      for _, n in pairs(report.without_stack) do sum = sum + n end
      print(report.running, report.samples, report.overruns, sum, report.clock)]])
    assert.equal("", err)
    assert.equal(0, code)
    assert.equal("false\t0\t0\t0\tnil\n", out)
  end)

  it("grows while a session runs, and adds up at any time", function()
    assert.is_true(sysprof.start { interval = 1 })
    local last = 0
    for n = 1, 50 do
      work.until_samples(sysprof, n)
      local report = consistent(sysprof.report())
      assert.is_true(report.running)
      assert.is_true(report.samples >= last)
      last = report.samples
    end
    assert.is_true(sysprof.stop())
  end)

  it("keeps the last session's numbers when it is over", function()
    assert.is_true(sysprof.start { mode = "C", path = folder .. "/profile", interval = 1, clock = "thread" })
    work.until_samples(sysprof, 20)
    assert.is_true(sysprof.stop())
    local report = consistent(sysprof.report())
    assert.is_false(report.running)
    assert.is_true(report.samples >= 20)
    assert.same({ "C", 1, "thread" }, { report.mode, report.interval, report.clock })
    work.until_true(coroutine.wrap(function()
      for _ = 1, 50 do coroutine.yield(false) end
      return true
    end))
    assert.same(report, sysprof.report())
  end)

  it("begins again at 0 with a new session", function()
    assert.is_true(sysprof.start { interval = 1 })
    work.until_samples(sysprof, 20)
    assert.is_true(sysprof.stop())
    -- A thousand seconds: no tick can fall between these two calls.
    assert.is_true(sysprof.start { interval = 1e6 })
    assert.equal(0, consistent(sysprof.report()).samples)
    assert.is_true(sysprof.stop())
  end)

  it("is a table of its own each time", function()
    local report = sysprof.report()
    report.samples, report.vmstate.GC = -1, -1
    assert.not_equal(-1, sysprof.report().samples)
    assert.not_equal(-1, sysprof.report().vmstate.GC)
  end)

  it("is not changed by a start that fails", function()
    assert.is_true(sysprof.start { interval = 1 })
    work.until_samples(sysprof, 3)
    assert.is_true(sysprof.stop())
    local before = sysprof.report()
    assert.is_nil((sysprof.start { interval = 0 }))
    assert.is_nil((sysprof.start { mode = "C", path = "/proc/absent/profile" }))
    assert.same(before, sysprof.report())
  end)

  it("does not miss the stacks that mode D does not take", function()
    assert.is_true(sysprof.start { mode = "D", interval = 1 })
    work.until_samples(sysprof, 20)
    assert.is_true(sysprof.stop())
    assert.equal(0, sum(consistent(sysprof.report()).without_stack))
  end)

  it("goes by no other function's name in a profile", function()
    local path = folder .. "/calls"
    assert.is_true(sysprof.start { mode = "C", path = path, interval = 1 })
    repeat until sysprof.report().samples >= 200
    assert.is_true(sysprof.stop())
    local code, out = shell.run(".", "sysprof collapse --native " .. shell.quote(path))
    assert.equal(0, code)
    assert.is_truthy(out:find("mlua", 1, true), "it is a function of Rust's")
    assert.is_nil(out:find "sysprof%.%l+;")
  end)
end)
