-- Faults of the host are the host's: a program ends as it does without the
-- profiler, and what was recorded until then is there.

local shell = require "spec.support.shell"
local profile = require "spec.support.profile"

-- Before the end of the program: a session, and what is needed to fault.
local PROFILED = [[
  local sysprof = require "sysprof"
  local work = require "spec.support.work"
  assert(sysprof.start { mode = "C", interval = 1, path = "%s" })
  work.until_samples(sysprof, 300)]]

local ends = {
  ["a read of address 8"] = { 128 + 11, "return ffi.cast('int *', 8)[0]" },
  ["a write into its own code"] = { 128 + 11, "ffi.cast('char *', ffi.cast('void *', ffi.C.getpid))[0] = 0" },
  ["a jump to nowhere"] = { 128 + 11, "return ffi.cast('int (*)(void)', 8)()" },
  ["a SIGSEGV that it is sent"] = { 128 + 11, "ffi.C.kill(ffi.C.getpid(), 11)" },
  ["a SIGBUS that it is sent"] = { 128 + 7, "ffi.C.kill(ffi.C.getpid(), 7)" },
  ["a trap that it is sent"] = { 128 + 5, "ffi.C.kill(ffi.C.getpid(), 5)" },
}

describe("a program that ends by", function()
  local folder
  setup(function() folder = shell.folder() end)
  teardown(function() shell.remove(folder) end)

  for name, case in pairs(ends) do
    it(name .. " ends as without the profiler", function()
      local wanted, act = case[1], case[2]
      local program = ("ulimit -c 0; luajit -e %s")
      local before = "local ffi = require 'ffi' ffi.cdef 'int getpid(void); int kill(int, int);' "
      local plain = shell.run(".", program:format(shell.quote(before .. act)))
      assert.equal(wanted, plain)
      local path = folder .. "/" .. name:gsub("%W", "_")
      local profiled, _, err = shell.run(".", program:format(shell.quote(before .. PROFILED:format(path) .. "\n" .. act)))
      assert.equal(wanted, profiled, err)
      local info = profile.info(path)
      assert.is_false(info.complete)
      assert.is_true(info.samples > 0)
    end)
  end
end)

describe("a program that blocks SIGSEGV", function()
  local folder
  setup(function() folder = shell.folder() end)
  teardown(function() shell.remove(folder) end)

  it("is not looked into: a read that faults would end it", function()
    local code, out, err = shell.run(".", "luajit -e " .. shell.quote(([[
      local sysprof, work, ffi = require "sysprof", require "spec.support.work", require "ffi"
      ffi.cdef "int pthread_sigmask(int, const unsigned long *, unsigned long *);"
      local SIG_SETMASK, SEGV = 2, 2 ^ (11 - 1)
      local mask = ffi.new("unsigned long[16]", { SEGV })
      assert(sysprof.start { mode = "C", interval = 1, path = "%s" })
      work.until_samples(sysprof, 20)
      local seen = sysprof.report()
      ffi.C.pthread_sigmask(SIG_SETMASK, mask, nil)
      work.until_samples(sysprof, seen.samples + 50)
      ffi.C.pthread_sigmask(SIG_SETMASK, ffi.new "unsigned long[16]", nil)
      local blind = sysprof.report()
      assert(sysprof.stop())
      print(seen.without_stack.unreadable, blind.without_stack.unreadable >= 40)]]):format(folder .. "/profile")))
    assert.equal("", err)
    assert.equal(0, code)
    assert.equal("0\ttrue\n", out)
    assert.is_true(profile.info(folder .. "/profile").complete)
  end)
end)
