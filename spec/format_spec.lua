-- Lua's option `format = 2`: the stream of Tarantool's tools. It is recorded, read
-- by every command, and says what version 3 says of the same samples, but for what
-- it has no place for. The module of tests/native sends the signal itself, so that
-- both recordings are of the same places.

local sysprof = require "sysprof"
local shell = require "spec.support.shell"
local profile = require "spec.support.profile"
local work = require "spec.support.work"

-- luajit case.lua FORMAT MODE FILE
local HEAD = [[
local native, sysprof, ffi = require "native", require "sysprof", require "ffi"
ffi.cdef "int native_plain(int, int);"
local library = ffi.load(package.searchpath("native", package.cpath))
assert(sysprof.start { mode = arg[2], format = tonumber(arg[1]), path = arg[3], clock = "wall", interval = 3.6e6 })
native.arm(27)
]]

-- What is known at the start, and Lua that is loaded later.
local PROGRAM = HEAD .. [[
local function inner() native.leaf() end
local function middle() native.call(inner) end
local function outer() native.pcall(middle) end
for _ = 1, 3 do outer() end
local function less(a, b) native.leaf() return a < b end
table.sort({ 2, 1 }, less)
string.gsub("x", "x", inner)
pcall(inner)
local function body() native.deep(2) end
coroutine.wrap(body)()
local object = newproxy(true)
getmetatable(object).__gc = function() native.leaf() end
object = nil
native.collect()
local function hot()
  local sum = 0
  for i = 1, 200 do sum = sum + library.native_plain(190, i) end
end
hot()
loadstring("local function late(leaf) leaf() return 1 end\nlate(...)\nlate(...)", "@late.lua")(native.leaf)
assert(sysprof.stop())
]]

-- A library that is loaded during the session, by a path that is none of its own,
-- and is met before and after it is known.
local LATE = HEAD .. [[
local late = assert(package.loadlib("./native_late.so", "luaopen_native"))()
package.loaded.late = late
late.arm(27)
-- The second sample has it looked for, the third has it.
late.leaf()
late.leaf()
local work = require "spec.support.work"
for _ = 1, 30 do work.piece() end
late.deep(2)
assert(sysprof.stop())
]]

-- Met so shortly before the end that nobody has looked at it before.
local LAST = HEAD .. [[
local late = assert(package.loadlib("./native_late.so", "luaopen_native"))()
late.arm(27)
native.leaf()
late.leaf()
assert(sysprof.stop())
]]

describe("a stream of version 2", function()
  local folder
  setup(function()
    folder = shell.folder()
    local module = package.searchpath("native", package.cpath)
    shell.run(folder, ("cp %s native_late.so"):format(shell.quote(module)))
  end)
  teardown(function() shell.remove(folder) end)
  after_each(function() sysprof.stop() end)

  local function run(line)
    local code, out, err = shell.run(folder, line)
    assert.equal("", err, line)
    assert.equal(0, code, line)
    return out
  end

  local function record(program, format, mode, file)
    shell.write(folder .. "/case.lua", program)
    run(("luajit case.lua %d %s %s"):format(format, mode, file))
  end

  local function has(out, text)
    assert.is_truthy(out:find(text, 1, true), ("no %s in\n%s"):format(text, out))
  end

  -- What both versions can say of the stacks of PROGRAM, sorted, with the samples
  -- of each. Version 2 has no names of Lua functions, no lines within them, and no
  -- stack in a trace; a C function is its symbol; which library native code is of
  -- is not known, so that insides of LuaJIT and of its program are shown.
  local function essence(file)
    local stacks = {}
    for line in run("sysprof collapse " .. file):gmatch "[^\n]+" do
      local stack, samples = line:match "^(.*) (%d+)$"
      local frames = {}
      for frame in stack:gmatch "[^;]+" do
        frame = frame:gsub("%.localalias$", ""):gsub("^native%.", "l_")
        if not frame:find "^main chunk" then frame = frame:gsub("^[%w_]+ %((.*:%d+)%)$", "%1") end
        local known = frame:find "^%S+%.lua:%d+$" or frame:find "%.lua%)$" or frame:find "^l_" or frame:find "^native_"
          or frame:find "^trace " or frame == "pcall" or frame:find "^%l+%.[%w_]+$"
        if known then frames[#frames + 1] = frame end
      end
      stack = table.concat(frames, ";")
      -- The one place where the two must differ.
      if stack:find "^trace " or stack:find "native_plain" then stack = "in the trace" end
      stacks[#stacks + 1] = stack .. " " .. samples
    end
    table.sort(stacks)
    return stacks
  end

  it("has the samples and stacks of version 3", function()
    for _, mode in ipairs { "D", "L", "C" } do
      record(PROGRAM, 2, mode, mode .. 2)
      record(PROGRAM, 3, mode, mode .. 3)
      local two, three = profile.info(folder .. "/" .. mode .. 2), profile.info(folder .. "/" .. mode .. 3)
      assert.is_true(two.complete)
      assert.equal(11, two.samples, mode)
      assert.equal(three.samples, two.samples, mode)
      assert.same(three.states, two.states)
      assert.equal(run("sysprof report --by state " .. mode .. 3), run("sysprof report --by state " .. mode .. 2))
    end
    assert.same(essence "C3", essence "C2")
    -- In leaf mode an FFI call is the frame, and not the trace that makes it: there
    -- is nothing left to be said in version 2.
    -- LuaJITs from before 2021 do not say that it is one.
    if not (os.getenv "SPEC_HOST" or ""):find "^210%.0%." then
      has(run "sysprof collapse L2", "[no stack: unreadable] 1\n")
    end
    has(run "sysprof collapse L2", "l_leaf 9\n")
    has(run "sysprof collapse L3", "native.leaf 9\n")
  end)

  it("says the same once it is converted, to 3 and back", function()
    record(PROGRAM, 2, "C", "two")
    record(PROGRAM, 3, "C", "three")
    run "sysprof convert --to 3 two -o two-in-3"
    run "sysprof convert --to 2 two-in-3 -o two-again"
    run "sysprof convert --to 2 three -o three-in-2"
    run "sysprof convert --to 3 three-in-2 -o three-again"
    local collapsed = run "sysprof collapse two"
    assert.equal(collapsed, run "sysprof collapse two-in-3")
    assert.equal(collapsed, run "sysprof collapse two-again")
    assert.same(essence "two", essence "three-in-2")
    assert.equal(run "sysprof collapse three-in-2", run "sysprof collapse three-again")
    for _, file in ipairs { "two-in-3", "two-again", "three-in-2", "three-again" } do
      assert.is_true(profile.info(folder .. "/" .. file).complete, file)
      assert.equal(run "sysprof report --by state two", run("sysprof report --by state " .. file))
    end
  end)

  it("is read by every command", function()
    record(PROGRAM, 2, "C", "profile")
    local functions = run "sysprof report --by function --limit 100 profile"
    for _, name in ipairs { "main chunk (case.lua)", "case.lua:8", "late.lua:1", "l_leaf", "string.gsub" } do
      has(functions, name)
    end
    assert.matches("trace %d+ %(case%.lua:22%)", run "sysprof report --by trace profile")
    has(run "sysprof report --by line profile", "no sample has a line")
    assert.matches("10  CFUNC\n", run "sysprof report --by state profile")
    assert.matches("format +version 2\n", run "sysprof info profile")
    has(run "sysprof collapse --native profile", "lua_pcall")
    has(run "sysprof diff profile profile", "before: 11 samples, after: 11 samples")
    run "sysprof flamegraph profile -o picture.svg"
    has(shell.read(folder .. "/picture.svg"), "late.lua:1")
  end)

  it("names what a library has that is loaded during the session", function()
    record(LATE, 2, "C", "two")
    local two = run "sysprof collapse two"
    assert.matches("main chunk %(case%.lua%);l_leaf 2\n", two)
    assert.matches("l_deep;native_deep[%w.]*;native_deep[%w.]*;native_deep[%w.]*;native_leaf 1\n", two)
    record(LATE, 3, "C", "three")
    local three = run "sysprof collapse three"
    assert.matches("main chunk %(case%.lua%);late%.leaf", three)
    assert.matches("late%.deep;native_deep;native_deep;native_deep;native_leaf 1\n", three)
    run "sysprof convert --to 2 three -o three-in-2"
    has(run "sysprof collapse three-in-2", "late.leaf")
  end)

  it("names what a library has that is loaded just before the end", function()
    record(LAST, 2, "C", "two")
    local two = run "sysprof collapse two"
    assert.matches("main chunk %(case%.lua%);l_leaf 2\n", two)
  end)

  it("holds what was counted, under a clock", function()
    local path = folder .. "/clock"
    for _, mode in ipairs { "D", "L", "C" } do
      assert.is_true(sysprof.start { mode = mode, format = 2, path = path, interval = 1 })
      work.until_samples(sysprof, 300)
      assert.is_true(sysprof.stop())
      local report, info = sysprof.report(), profile.info(path)
      assert.is_true(info.complete)
      assert.equal(report.samples, info.samples)
      for state, n in pairs(report.vmstate) do assert.equal(n, info.states[state] or 0, state) end
    end
    assert.matches("trace %d+ %(.*spec/support/work%.lua:%d+%) %d+\n", run("sysprof collapse " .. path))
  end)

  it("begins as Tarantool's do, and is written only where it is wanted", function()
    local path = folder .. "/begins"
    assert.is_true(sysprof.start { mode = "C", format = 2, path = path })
    assert.is_true(sysprof.stop())
    assert.equal("ljs\3", shell.read(path):sub(1, 4))
    for _, options in ipairs { { format = 3 }, {} } do
      options.mode, options.path = "C", path
      assert.is_true(sysprof.start(options))
      assert.is_true(sysprof.stop())
      assert.equal("ljp\3", shell.read(path):sub(1, 4))
    end
    assert.is_true(sysprof.start { format = 2 })
    assert.is_true(sysprof.stop())
  end)
end)
