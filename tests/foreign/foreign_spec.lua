-- LuaJITs that are laid out as none is: each works, and `start` refuses it and
-- says what was not found. Nothing is guessed, and nothing of it is left.

local shell = require "spec.support.shell"

local ENOTSUP = 95

-- What `start` says of each is not found; false where nothing is missing.
local missing = {
  none = false,
  header = "the type of a lua_State",
  state = "a call of a C function",
  vmstate = "the VM state (vmstate)",
  twice = "the VM state (vmstate)",
  frame = "the size of the interpreter's C frame",
  string = "the text of a string",
  proto = "the lines of a function",
}

-- Prints what start has answered, then what a program prints that goes on.
local PROGRAM = [[
  local function fib(n) return n < 2 and n or fib(n - 1) + fib(n - 2) end
  local sysprof = require "sysprof"
  for _ = 1, 2 do
    print(sysprof.start { mode = "C", path = "profile" })
    print(fib(20), sysprof.report().running)
    sysprof.stop()
  end]]

describe("a LuaJIT of a foreign layout", function()
  local folder
  before_each(function() folder = shell.folder() end)
  after_each(function() shell.remove(folder) end)

  for layout, what in pairs(missing) do
    it(("is %s: %s"):format(what and "refused" or "accepted where it is none", layout), function()
      local code, out, err = shell.run(".", "scripts/foreign.sh " .. layout)
      assert.equal(0, code, err)
      local luajit = out:match "^(.-)\n$"
      code, out, err = shell.run(folder, shell.quote(luajit) .. " -e " .. shell.quote(PROGRAM))
      assert.equal("", err)
      assert.equal(0, code)
      local answer = "true\n6765\ttrue\n"
      if what then
        answer = ("nil\tthis LuaJIT is laid out in a way that sysprof does not know: %s was not found\t%d\n"):format(what, ENOTSUP)
          .. "6765\tfalse\n"
      end
      assert.equal(answer:rep(2), out)
      assert.same(what and {} or { "profile" }, shell.names(folder))
    end)
  end
end)
