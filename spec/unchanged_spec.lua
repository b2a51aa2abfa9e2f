-- Looking changes nothing: a program has the same traces, aborts and exits with a
-- session as without.

local shell = require "spec.support.shell"

-- Each with some tens of samples.
local PROGRAMS = {
  { "binary_trees", 10 }, { "deltablue", 20 }, { "fannkuch", 8 }, { "havlak", 3 }, { "json", 1 },
  { "k_nucleotide", 20000 }, { "mandelbrot", 200 }, { "n_body", 20000 }, { "richards", 10 },
  { "spectral_norm", 100 },
}

-- How many places of the heap are tried.
local TRIES = 4

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
  local function counts(program, size, how, shift)
    local code, out, err = shell.run(".", ("LD_PRELOAD=%s/seed.so setarch -R "
      .. "luajit spec/support/unchanged.lua examples/benchmarks/%s.lua %d %s %d")
      :format(folder, program, size, how, shift))
    assert.equal(0, code, err)
    return out, tonumber(err)
  end

  for _, case in ipairs(PROGRAMS) do
    local program, size = case[1], case[2]
    it(program, function()
      -- With 32-bit references what is compiled depends on where the heap lies, and
      -- other objects before the program change that, a session's or anyone's.
      if (os.getenv "SPEC_HOST" or ""):find "gc32$" then return pending "32-bit references" end
      -- Where machine code comes to lie, and so what aborted traces wait for, is
      -- drawn by lot among the places that are free: maps of a session's, or of
      -- anybody's, may turn that. A program that is disturbed differs each time.
      local sans, with
      for shift = 0, TRIES - 1 do
        local samples
        sans = counts(program, size, "sans", shift)
        with, samples = counts(program, size, "with", shift)
        assert.matches("^start [1-9]", sans)
        assert.is_true(samples > 0)
        if sans == with then break end
      end
      assert.equal(sans, with)
    end)
  end
end)
