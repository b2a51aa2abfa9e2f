-- Every program of spec/programs prints under the profiler, at the shortest
-- interval and in the fullest mode, what it prints without, JIT on and off.
-- `make soak` does the same for a minute each.

local lfs = require "lfs"
local shell = require "spec.support.shell"

local ROUNDS = 10

local programs = {}
for name in lfs.dir "spec/programs" do
  if name:match "%.lua$" then programs[#programs + 1] = name end
end
table.sort(programs)
assert(#programs > 0, "spec/programs is empty")

describe("under the profiler", function()
  local folder
  setup(function() folder = shell.folder() end)
  teardown(function() shell.remove(folder) end)

  for _, name in ipairs(programs) do
    for _, jit in ipairs { "on", "off" } do
      it(("%s prints what it prints without, JIT %s"):format(name, jit), function()
        local rounds = ("luajit -j%s spec/support/rounds.lua spec/programs/%s rounds=%d"):format(jit, name, ROUNDS)
        local code, plain, err = shell.run(".", rounds)
        assert.equal(0, code, err)
        local path = folder .. "/" .. name .. jit
        local profiled
        code, profiled, err = shell.run(".", ("%s profile=%s interval=0.1"):format(rounds, path))
        assert.equal(0, code, err)
        assert.equal(plain, profiled)
        assert.is_true(tonumber(err:match "^rounds %d+ signals %d+ samples (%d+)\n$") > 0, err)
      end)
    end
  end
end)
