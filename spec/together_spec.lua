-- With LuaJIT's own profiler in the same process: both run, whichever starts and
-- stops first. It takes SIGPROF without a look at whose it is, so that a session
-- that was there before has no samples of its own until it stops, and makes up
-- for them by weight.

local shell = require "spec.support.shell"
local profile = require "spec.support.profile"

describe("a session and jit.p", function()
  local folder
  before_each(function() folder = shell.folder() end)
  after_each(function() shell.remove(folder) end)

  -- Each step: who, and whether it starts (+) or stops (-).
  for _, order in ipairs {
    "session+ jit.p+ session- jit.p-",
    "session+ jit.p+ jit.p- session-",
    "jit.p+ session+ session- jit.p-",
    "jit.p+ session+ jit.p- session-",
  } do
    it("run together: " .. order, function()
      shell.write(folder .. "/program.lua", [[
        local sysprof = require "sysprof"
        local work = require "spec.support.work"
        local p = require "jit.p"
        local steps = {
          ["session+"] = function()
            assert(sysprof.start { mode = "C", path = "profile", interval = 1 })
          end,
          ["session-"] = function() assert(sysprof.stop()) end,
          ["jit.p+"] = function() p.start("fi1", "jit.p") end,
          ["jit.p-"] = p.stop,
        }
        for step in arg[1]:gmatch "%S+" do
          steps[step]()
          for _ = 1, 30 do work.piece() end
        end
        print(sysprof.report().samples)
        -- Neither is in the way of another round.
        steps["session+"]()
        work.until_samples(sysprof, 20)
        steps["session-"]()
        -- The finalizer of its first round would end the second one, wherever that is.
        collectgarbage()
        steps["jit.p+"]()
        for _ = 1, 20 do work.piece() end
        steps["jit.p-"]()]])
      local code, out, err = shell.run(folder, "luajit program.lua " .. shell.quote(order))
      assert.equal("", err)
      assert.equal(0, code)
      assert.is_true(tonumber(out) >= 1, out)
      local info = profile.info(folder .. "/profile")
      assert.is_true(info.complete)
      assert.is_true(info.samples >= 20)
      assert.matches("%%", shell.read(folder .. "/jit.p"))
    end)
  end
end)
