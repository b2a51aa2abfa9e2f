-- `sysprof report --by trace`: what each trace was at.

local shell = require "spec.support.shell"

-- Exits never become traces of their own here, so that they stay what they are.
local PROGRAM = [[
local sysprof = require "sysprof"
jit.opt.start "hotexit=60000"
local function looping(n)
  local sum = 0
  for i = 1, n do sum = sum + i end
  return sum
end
local function leaving(n)
  local sum = 0
  for i = 1, n do
    if i % 2 == 0 then sum = sum + 1 else sum = sum - 1 end
  end
  return sum
end
local function calling(n)
  local length = 0
  for i = 1, n do length = length + #tostring(i * 0.37) end
  return length
end
assert(sysprof.start { mode = "C", path = "profile", interval = 1 })
repeat
  looping(1e6)
  for _ = 1, 20 do leaving(400) end
  calling(2000)
  local states = sysprof.report().vmstate
until states.TRACE >= 100 and states.EXIT >= 10
print(sysprof.report().vmstate.EXIT)
assert(sysprof.stop())]]

describe("the report by trace", function()
  local folder
  setup(function() folder = shell.folder() end)
  teardown(function() shell.remove(folder) end)

  it("tells loops, native calls and exits apart", function()
    shell.write(folder .. "/case.lua", PROGRAM)
    local code, out, err = shell.run(folder, "luajit case.lua")
    assert.equal("", err)
    assert.equal(0, code)
    local exits = tonumber(out)
    local report
    code, report, err = shell.run(folder, "sysprof report --by trace profile")
    assert.equal(0, code, err)
    -- Samples by the line that a trace starts at.
    local of = {}
    for row in report:gmatch "[^\n]+" do
      local samples, looped, outside, native, left, line =
        row:match "%%%s+([%d,]+)%s+([%d,]+)%s+([%d,]+)%s+([%d,]+)%s+([%d,]+)%s+trace %d+ %(case%.lua:(%d+)%)"
      if samples then
        local sums = of[tonumber(line)] or { samples = 0, looped = 0, outside = 0, native = 0, left = 0 }
        of[tonumber(line)] = sums
        for name, text in pairs { samples = samples, looped = looped, outside = outside, native = native, left = left } do
          sums[name] = sums[name] + tonumber((text:gsub(",", "")))
        end
      end
    end
    local looping, leaving, calling = of[5], of[10], of[17]
    assert.is_true(looping and leaving and calling and true, report)
    -- It has a loop, and is left but once each time.
    assert.is_true(looping.looped > 0.9 * looping.samples, report)
    -- Its trace is gone into again for every second turn.
    assert.is_true(leaving.left > 0, report)
    assert.is_true(calling.native > 0, report)
    assert.equal(0, looping.native, report)
    local left = 0
    for _, sums in pairs(of) do
      left = left + sums.left
      assert.equal(sums.samples, sums.looped + sums.outside + sums.native + sums.left, report)
    end
    assert.is_true(left > 0 and left <= exits, report)
  end)

  it("tells what was aborted, where and why", function()
    shell.write(folder .. "/aborts.lua", [[
local sysprof = require "sysprof"
local function makes(n)
  local last
  for i = 1, n do last = function() return i end end
  return last
end
local function disabled(n)
  for _ = 1, n do makes(0) end
end
assert(sysprof.start { mode = "C", path = "profile", interval = 1 })
makes(1000)
jit.off(makes)
-- Long enough, whatever else counts in the same place.
disabled(1e5)
assert(sysprof.stop())]])
    local code, out, err = shell.run(folder, "luajit aborts.lua")
    assert.equal("", err .. out)
    assert.equal(0, code)
    local report
    code, report, err = shell.run(folder, "sysprof report --by trace profile")
    assert.equal(0, code, err)
    -- One of each at least, as often as LuaJIT has tried.
    local aborted = report:match "\nAborted recordings\n  times  where and why\n(.*)$" or report
    assert.matches("%f[%d][1-9]%d*  aborts%.lua:4: NYI: bytecode FNEW\n", aborted)
    -- LuaJIT gives up for good where it has failed too often.
    assert.is_truthy(aborted:find "%f[%d][1-9]%d*  aborts%.lua:2: JIT compilation disabled for function\n"
      or aborted:find "%f[%d][1-9]%d*  aborts%.lua:2: blacklisted\n", report)
  end)
end)
