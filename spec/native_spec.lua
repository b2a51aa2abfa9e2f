-- One stack of native code and Lua: what is under each other in a program that
-- goes from Lua to C to Lua and so on is under each other in its profile. The
-- module of tests/native sends the profiler's signal itself, so that each sample
-- is of a known place, and the stack is compared to its last frame.

local shell = require "spec.support.shell"

local HEAD = [[
local native = require "native"
local sysprof = require "sysprof"
assert(sysprof.start { mode = "C", clock = "wall", interval = 3.6e6, path = "profile" })
native.arm(27)
]]
local TAIL = [[
assert(sysprof.stop())
]]

-- A line of HEAD is none of the program's.
local OFFSET = 4

-- What the C library is made of differs: `*` stands for frames of its own.
local function pattern(stack)
  return "^" .. stack:gsub("[^%w%s]", "%%%0"):gsub("%%%*", "[%%w_;%%.%%[%%]]+") .. "$"
end

-- LuaJITs from before 2021 do not say which calls a trace has in it.
local INLINED = not (os.getenv "SPEC_HOST" or ""):find "^210%.0%."

-- Each case: its name, the program, and the stacks of its samples, outermost
-- frame first, in the order of their names. `file` is where a function without
-- a name starts: `@2` is the program's line 2.
local cases = {
  { "Lua, C, Lua, C, Lua, C", [[
local function inner() native.leaf() end
local function middle() native.call(inner) end
local function outer() native.call(middle) end
outer()
]], "main;outer @3;native.call;@2;native.call;@1;native.leaf" },
  { "C functions under C functions", [[
local function inner() native.deep(3) end
inner()
]], "main;inner @1;native.deep;native_deep;native_deep;native_deep;native_deep;native_leaf" },
  { "table.sort", [[
local function less(a, b) native.leaf() return a < b end
table.sort({ 2, 1 }, less)
]], "main;table.sort;@1;native.leaf" },
  { "string.gsub", [[
local function replace() native.leaf() end
string.gsub("x", "x", replace)
]], "main;string.gsub;@1;native.leaf" },
  { "pcall", [[
local function called() native.leaf() end
pcall(called)
]], "main;pcall;@1;native.leaf" },
  { "xpcall and its handler", [[
local function fails() error "once" end
local function handler() native.leaf() end
xpcall(fails, handler)
]], "main;xpcall;@1;error;@2;native.leaf" },
  { "lua_call, lua_pcall and lua_cpcall", [[
local function inner() native.leaf() end
local function middle() native.call(inner) end
local function outer() native.pcall(middle) end
native.cpcall(outer)
]], "main;native.cpcall;l_protected;@3;native.pcall;@2;native.call;@1;native.leaf" },
  { "coroutines in coroutines in C callbacks", [[
local function leaf() native.leaf() end
local function inner() coroutine.wrap(leaf)() end
local function outer() native.resume(inner) end
local function body() native.sort(outer) end
coroutine.resume(coroutine.create(body))
]], "main;coroutine.resume;@4;native.sort;*;native_compare;native_back;@3;native.resume;@2;coroutine.wrap_aux;@1;native.leaf" },
  { "an error that unwinds through all of it", [[
local function fails() native.fails() end
local function a() native.rust(fails) end
local function b() native.cpp(a) end
local function c() native.sort(b) end
local function d() native.call(coroutine.wrap(c)) end
assert(not native.pcall(d))
native.leaf()
]], "main;native.leaf",
    "main;native.pcall;@5;native.call;coroutine.wrap_aux;@4;native.sort;*;native_compare;native_back;@3;" ..
    "native.cpp;native_cpp_try;native_back;@2;native.rust;native_rust_twice;rust::each;" ..
    "rust::native_rust_twice::{{closure}};native_back;@1;native.fails" },
  { "a finalizer inside of a C function", [[
local object = newproxy(true)
getmetatable(object).__gc = function() native.leaf() end
object = nil
native.collect()
]], "main;native.collect;@2;native.leaf" },
  { "FFI calls and callbacks", [[
local ffi = require "ffi"
ffi.cdef "int native_each(int (*)(int), int);"
local library = ffi.load(package.searchpath("native", package.cpath))
local function called() native.leaf() return 1 end
local callback = ffi.cast("int (*)(int)", called)
local sum = library.native_each(callback, 1)
callback:free()
]], "main;ffi.meta.__call;native_each;@4;native.leaf" },
  { "an FFI call from a trace", [[
local ffi = require "ffi"
ffi.cdef "int native_plain(int, int);"
local library = ffi.load(package.searchpath("native", package.cpath))
local function hot()
  local sum = 0
  for i = 1, 200 do sum = sum + library.native_plain(190, i) end
end
hot()
]], "main;hot @4;" .. (INLINED and "ffi.meta.__call;" or "") .. "native_plain" },
  { "C++ that throws and catches", [[
local function inner() native.leaf() end
native.cpp(inner)
]], "main;native.cpp;native_cpp_try;native::Worker::work(int);native::Worker::work(int);" ..
    "native::Worker::work(int);native::Worker::work(int)",
    "main;native.cpp;native_cpp_try;native_back;@1;native.leaf", counts = { 1, 2 } },
  { "Rust", [[
local function inner() native.leaf() end
native.rust(inner)
]], "main;native.rust;native_rust_twice;rust::each;rust::native_rust_twice::{{closure}};native_back;@1;native.leaf",
    counts = { 2 } },
  { "a signal handler on a stack of its own", [[
native.on_signal_stack()
]], "main;native.on_signal_stack;*;native_handler;native_deep;native_deep;native_leaf" },
  { "code without unwind tables that has a frame pointer", [[
local function inner() native.leaf() end
native.framed(inner)
]], "main;native.framed;native_framed;native_back;@1;native.leaf" },
  { "code without either that goes straight to its end", [[
local function inner() native.leaf() end
native.bare(inner)
]], "main;native.bare;native_framed;native_through_bare;native_bare;native_back;@1;native.leaf" },
}

-- A method that a metatable alone leads to, of a library that not every LuaJIT has.
if pcall(require, "string.buffer") then
  cases[#cases + 1] = { "a method of a string buffer", [[
local buffer = require "string.buffer"
local object = setmetatable({}, { __tostring = function() native.leaf() return "" end })
buffer.new():put(object)
]], "main;buffer:put;@2;native.leaf" }
end

-- Stacks whose native part ends somewhere: they say so, and go on where Lua does.
local ends = {
  { "code without unwind tables", [[
local function inner() native.leaf() end
native.winding(inner)
]], "main;native.winding;[native stack ends: no unwind table];native_winding;native_back;@1;native.leaf" },
  { "a fiber", [[
local function inner() native.leaf() end
native.fiber(inner)
]], "main;native.fiber;[native stack of its own];*;native_fiber;native_back;@1;native.leaf" },
  { "a signal handler on a stack of its own, in a fiber, in a coroutine", [[
local function inner() native.on_signal_stack() end
local function body() native.fiber(inner) end
coroutine.wrap(body)()
]], "main;coroutine.wrap_aux;@2;native.fiber;[native stack of its own];*;native_fiber;native_back;@1;" ..
    "native.on_signal_stack;*;native_handler;native_deep;native_deep;native_leaf" },
}

-- The stack that a line of `sysprof collapse` must be.
local function expected(stack)
  stack = stack:gsub("^main", "main chunk (case.lua)")
  stack = stack:gsub("(%w+) @(%d+)", function(name, line)
    return ("%s (case.lua:%d)"):format(name, line + OFFSET)
  end)
  return (stack:gsub("@(%d+)", function(line) return "case.lua:" .. line + OFFSET end))
end

-- The luajit that Debian packages.
local stripped = os.getenv "SPEC_HOST" == "debian"

describe("native code and Lua in one stack:", function()
  local folder
  before_each(function() folder = shell.folder() end)
  after_each(function() shell.remove(folder) end)

  local function record(program)
    shell.write(folder .. "/case.lua", HEAD .. program .. TAIL)
    local code, out, err = shell.run(folder, "luajit case.lua")
    assert.equal(0, code, out .. err)
  end

  local function stacks(options)
    local code, out, err = shell.run(folder, "sysprof collapse " .. options .. " profile")
    assert.equal(0, code, err)
    assert.equal("", err)
    local lines = {}
    for line in out:gmatch "[^\n]+" do lines[#lines + 1] = line end
    table.sort(lines)
    return lines
  end

  -- Records a case and compares its stacks.
  local function check(case)
    record(case[2])
    local found = stacks ""
    local wanted = {}
    for i = 3, #case do
      wanted[i - 2] = expected(case[i]) .. " " .. (case.counts or { 1, 1 })[i - 2]
    end
    table.sort(wanted)
    assert.equal(#wanted, #found, table.concat(found, "\n"))
    for i, stack in ipairs(wanted) do assert.matches(pattern(stack), found[i]) end
    -- With the insides of LuaJIT shown all of them begin where the program does. A
    -- stripped binary has no name for functions that it doesn't export.
    local way = stripped and ".*;lua_pcall" or ".*;pmain;.*;lua_pcall"
    for _, stack in ipairs(stacks "--native") do
      assert.matches("^_start;.*;main;" .. way .. ";main chunk %(case%.lua%)", stack)
    end
  end

  for _, case in ipairs(cases) do
    it(case[1], function()
      check(case)
      for _, stack in ipairs(stacks "--native") do
        assert.is_nil(stack:find("[native stack", 1, true), stack)
      end
    end)
  end

  it("the names of C functions whose library was loaded later and has no symbols", function()
    local module = package.searchpath("native", package.cpath)
    local line = "cp %s native_late.so && strip -s native_late.so"
    assert.equal(0, (shell.run(folder, line:format(shell.quote(module)))))
    shell.write(folder .. "/case.lua", [[
local sysprof = require "sysprof"
assert(sysprof.start { mode = "C", clock = "wall", interval = 3.6e6, path = "profile" })
local late = assert(package.loadlib("./native_late.so", "luaopen_native"))()
package.loaded.late = late
late.arm(27)
late.leaf()
assert(sysprof.stop())
]])
    local code, out, err = shell.run(folder, "luajit case.lua")
    assert.equal(0, code, out .. err)
    local found = stacks ""
    assert.equal(1, #found)
    assert.matches("^main chunk %(case%.lua%);late%.leaf;%[native stack ends: unknown module%] 1$", found[1])
  end)

  for _, case in ipairs(ends) do
    it(case[1], function() check(case) end)
  end
end)
