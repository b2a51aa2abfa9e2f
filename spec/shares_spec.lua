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

  local function total(heavies, lights)
    local path = folder .. "/profile"
    local code, _, err = shell.run(".", ("luajit spec/support/shares.lua %s %d %d %d")
      :format(path, SIGNALS, heavies, lights))
    assert.equal("", err)
    assert.equal(0, code)
    return profile.totals(path)
  end

  it("are 75 and 25 where one does three times the work", function()
    local totals = total(3, 1)
    assert.near(75, totals.heavy, WITHIN)
    assert.near(25, totals.light, WITHIN)
  end)

  it("are 25 and 75 with the roles swapped", function()
    local totals = total(1, 3)
    assert.near(25, totals.heavy, WITHIN)
    assert.near(75, totals.light, WITHIN)
  end)
end)
