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

  -- LuaJITs from before 2021 do not say which calls a trace has in it.
  local inlined = not (os.getenv "SPEC_HOST" or ""):find "^210%.0%."

  local function compiled(what)
    local path = folder .. "/profile"
    local code, _, err = shell.run(".", ("luajit spec/support/inlined.lua %s %d %s"):format(path, SIGNALS, what))
    assert.equal("", err)
    assert.equal(0, code)
    return profile.totals(path), profile.lines(path, "sines.lua")
  end

  it("are 75 and 25 in one trace with six sines and two, and the same for each line", function()
    if not inlined then return pending "inlined calls are not told apart" end
    local totals, lines = compiled "sines"
    assert.near(75, totals.six, WITHIN)
    assert.near(25, totals.two, WITHIN)
    for line = 6, 11 do assert.near(12.5, lines[line], WITHIN) end
    for line = 15, 16 do assert.near(12.5, lines[line], WITHIN) end
  end)

  it("are 50 and 50 where a side trace in nested loops has three times the work in a quarter of the turns", function()
    if not inlined then return pending "inlined calls are not told apart" end
    local totals = compiled "nested"
    -- The loops take some of the time themselves, and so does the way between two
    -- traces: as many sines are not quite as much time.
    assert.near(50, 100 * totals.six / (totals.six + totals.two), 2 * WITHIN)
  end)

  it("are nearly all and nothing where the two sines were moved out of the loop", function()
    if not inlined then return pending "inlined calls are not told apart" end
    local totals = compiled "eliminated"
    assert.near(100, totals.six, 2 * WITHIN)
    assert.near(0, totals.two or 0, WITHIN)
  end)
end)
