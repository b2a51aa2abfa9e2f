-- The programs of examples/benchmarks: the report begins with the function and
-- line that one expects from their sources.

local shell = require "spec.support.shell"

-- Program, a size that takes up to some seconds, and what is expected
-- first: where the functions start, and lines, any of which may lead. `within` is
-- how far from the top, where built-ins that are called come in between.
local PROGRAMS = {
  { "binary_trees", 13, functions = { 8 }, lines = { 9, 11 } },
  { "deltablue", 600, functions = { 107 }, lines = { 109 } },
  { "fannkuch", 9, functions = { 9 }, lines = { 16 } },
  { "havlak", 80, functions = { 74 }, lines = { 79, 80, 82 } },
  { "json", 8, functions = { 23, 13 }, lines = { 25, 24 }, within = 3 },
  { "k_nucleotide", 1000000, functions = { 19 }, lines = { 22, 23 }, within = 2 },
  -- Of which line it is the instruction that waits depends on where it lies.
  { "mandelbrot", 1500, functions = { 10 }, lines = { 12, 13, 14, 15 } },
  { "n_body", 3000000, functions = { 38 }, lines = { 43, 44, 45, 46, 47 } },
  { "richards", 100, functions = { 63 }, lines = { 66 } },
  -- So it does here: a division is waited for at the loop's end as well.
  { "spectral_norm", 1000, functions = { 14, 24, 9 }, lines = { 17, 18, 27, 28, 10, 11 } },
}

describe("the report on", function()
  local folder, programs
  setup(function()
    folder = shell.folder()
    local _, here = shell.run(".", "pwd")
    programs = here:gsub("%s+$", "") .. "/examples/benchmarks/"
  end)
  teardown(function() shell.remove(folder) end)

  -- The first `count` rows of a table, without the numbers.
  local function top(by, count)
    local code, out, err = shell.run(folder, "sysprof report --by " .. by .. " profile")
    assert.equal(0, code, err)
    local rows = {}
    for row in out:gmatch "[^\n]+" do
      rows[#rows + 1] = row:match "^%s*[%d.]+%%%s+[%d.]+%%%s+[%d,]+%s+(.*)$"
      if #rows == count then break end
    end
    return rows
  end

  local function has(rows, endings)
    for _, row in ipairs(rows) do
      for _, ending in ipairs(endings) do
        if row:sub(-#ending) == ending then return true end
      end
    end
    return false
  end

  for _, case in ipairs(PROGRAMS) do
    local name, size = case[1], case[2]
    it(name .. " names its function and line first", function()
      local code, _, err = shell.run(folder, ("sysprof record --interval 1 -o profile -- luajit %s%s.lua %d")
        :format(programs, name, size))
      assert.equal(0, code, err)
      local within = case.within or 1
      local functions, lines = {}, {}
      for i, line in ipairs(case.functions) do
        -- With a name before it, or without.
        functions[2 * i - 1] = ("/%s.lua:%d)"):format(name, line)
        functions[2 * i] = ("/%s.lua:%d"):format(name, line)
      end
      for i, line in ipairs(case.lines) do lines[i] = ("/%s.lua:%d"):format(name, line) end
      local rows = top("function", within)
      assert.is_true(has(rows, functions), table.concat(rows, "\n"))
      -- LuaJITs from before 2021 say of most compiled code where it starts.
      if (os.getenv "SPEC_HOST" or ""):find "^210%.0%." then return end
      rows = top("line", within)
      assert.is_true(has(rows, lines), table.concat(rows, "\n"))
    end)
  end
end)
