-- The samples that report() counts, the sum of its VM states, and the samples
-- in the stream are the same number, in each mode.

local sysprof = require "sysprof"
local shell = require "spec.support.shell"
local profile = require "spec.support.profile"
local work = require "spec.support.work"

describe("a stream", function()
  local folder
  setup(function() folder = shell.folder() end)
  teardown(function() shell.remove(folder) end)
  after_each(function() sysprof.stop() end)

  for _, mode in ipairs { "D", "L", "C" } do
    for _, clock in ipairs { "auto", "thread" } do
      it(("holds what was counted, mode %s, clock %s"):format(mode, clock), function()
        local path = folder .. "/profile"
        assert.is_true(sysprof.start { mode = mode, clock = clock, interval = 1, path = path })
        work.until_samples(sysprof, 500)
        assert.is_true(sysprof.stop())
        local report, info = sysprof.report(), profile.info(path)
        assert.is_true(info.complete)
        assert.equal(mode, info.mode)
        assert.equal(report.clock, info.clock)
        assert.equal(report.samples, info.samples)
        local states = 0
        for state, n in pairs(report.vmstate) do
          assert.equal(n, info.states[state] or 0, state)
          states = states + n
        end
        assert.equal(report.samples, states)
      end)
    end
  end
end)
