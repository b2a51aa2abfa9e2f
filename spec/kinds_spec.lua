-- What the stepping goes through is of the kinds that it is there for: LuaJIT's own
-- dump of the programs in tests/step/programs says so.

local shell = require "spec.support.shell"

local host = os.getenv "SPEC_HOST" or ""

-- A kind of trace, the program that has it, and what the dump says of one: how it
-- ends, what it continues, or a bytecode and the first one of what it has inlined.
local KINDS = {
  { "loops", "hot", "%-> loop\n" },
  { "side traces", "sides", " start %d+/%d+ " },
  { "up-recursion", "recursion", "%-> up%-recursion\n" },
  -- 210.7.4 has made none in any run.
  not host:find "^210%.7%." and { "down-recursion", "recursion", "%-> down%-recursion\n" },
  { "tail recursion", "hottail", "%-> tail%-recursion\n" },
  { "tail calls", "hottail", "\n%d+  [%. ]*CALLT [^\n]*\n0000  [%. ]*J?FUNCF " },
  { "traces that go on behind a call", "stitched", "%-> stitch\n" },
  { "what goes on there", "stitched", " start %d+/stitch " },
  { "traces that leave the function they began in", "hotclosures", "%-> return\n" },
  { "traces that start in the middle of a function", "sides", " start %d+/%d+ [^\n]*\n00[1-9]%d  " },
  { "traces that start in a call inlined into their parent", "sides", " start %d+/%d+ [^\n]*\n%d+  %. " },
  { "variable arguments", "hotvarargs", "\n0000  %. FUNCV [^\n]*\n%d+  %. %. VARG " },
  { "metamethods", "hotmeta", "\n%d+  ADDVV [^\n]*\n0000  %. %. FUNCF " },
  { "iterators in Lua", "hotiterators", "\n%d+  ITERC [^\n]*\n0000  %. FUNCF " },
  { "four calls in each other", "inlined", "\n0000  " .. ("%. "):rep(4) .. "J?FUNCF " },
  { "sunk allocations", "sunk", "{sink" },
}

describe("the programs of the stepping have", function()
  local folder
  setup(function() folder = shell.folder() end)
  teardown(function() shell.remove(folder) end)

  for _, kind in pairs(KINDS) do
    if kind then
      local name, program, pattern = unpack(kind)
      it(name, function()
        local code, _, err = shell.run(".", ("luajit -jdump=+r,%s/dump spec/support/kinds.lua tests/step/programs/%s.lua")
          :format(folder, program))
        assert.equal(0, code, err)
        assert.is_truthy(shell.read(folder .. "/dump"):find(pattern), "the dump has no " .. pattern)
      end)
    end
  end
end)
