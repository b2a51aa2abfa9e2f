-- Looking changes nothing: a program has the same traces, aborts and exits with a
-- session as without.

local shell = require "spec.support.shell"

-- Each with some tens of samples.
local PROGRAMS = {
  { "binary_trees", 10 }, { "deltablue", 20 }, { "fannkuch", 8 }, { "havlak", 3 }, { "json", 1 },
  { "k_nucleotide", 20000 }, { "mandelbrot", 200 }, { "n_body", 20000 }, { "richards", 10 },
  { "spectral_norm", 100 },
}

describe("with a session and without, the same is compiled of", function()
  local folder
  setup(function()
    folder = shell.folder()
    local code, _, err = shell.run(".", "cc -shared -fPIC -O1 -Wall -Wextra -Werror -o "
      .. folder .. "/seed.so spec/support/seed.c")
    assert.equal(0, code, err)
  end)
  teardown(function() shell.remove(folder) end)

  -- What is compiled, and how many samples were taken.
  local function counts(program, size, session)
    local code, out, err = shell.run(".", ("SESSION=%s LD_PRELOAD=%s/seed.so setarch -R "
      .. "luajit spec/support/unchanged.lua examples/benchmarks/%s.lua %d")
      :format(session, folder, program, size))
    assert.equal(0, code, err)
    return out, tonumber(err)
  end

  for _, case in ipairs(PROGRAMS) do
    local program, size = case[1], case[2]
    it(program, function()
      local sans = counts(program, size, "sans")
      local with, samples = counts(program, size, "with")
      assert.matches("^start [1-9]", sans)
      assert.is_true(samples > 0)
      assert.equal(sans, with)
    end)
  end
end)
