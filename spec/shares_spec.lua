-- The profile of a program whose true shares are known shows these shares.

local shell = require "spec.support.shell"
local profile = require "spec.support.profile"

-- So many signals put the bound of 2 points six standard deviations away, if
-- they fall at random.
local SIGNALS, WITHIN = 16000, 2

describe("shares of the time", function()
  local folder
  setup(function() folder = shell.folder() end)
  teardown(function() shell.remove(folder) end)

  local function recorded(program, ...)
    local path = folder .. "/profile"
    local arguments = table.concat({ path, SIGNALS, ... }, " ")
    local code, _, err = shell.run(".", ("luajit spec/support/%s.lua %s"):format(program, arguments))
    assert.equal("", err)
    assert.equal(0, code)
    return profile.totals(path)
  end

  it("are 75 and 25 where one does three times the work", function()
    local totals = recorded("shares", 3, 1)
    assert.near(75, totals.heavy, WITHIN)
    assert.near(25, totals.light, WITHIN)
  end)

  it("are 25 and 75 with the roles swapped", function()
    local totals = recorded("shares", 1, 3)
    assert.near(25, totals.heavy, WITHIN)
    assert.near(75, totals.light, WITHIN)
  end)

  -- How much each line of compiled code has is held to counts of instructions, where
  -- it is exact (tests/step/programs), and to times by `make bench`.
  it("are nothing for a call whose work was moved out of the loop", function()
    -- LuaJITs from before 2021 do not say which calls a trace has in it.
    if (os.getenv "SPEC_HOST" or ""):find "^210%.0%." then return pending "inlined calls are not told apart" end
    local totals = recorded "eliminated"
    assert.near(0, totals.two or 0, WITHIN)
    assert.is_true(totals.six > 50)
  end)
end)
