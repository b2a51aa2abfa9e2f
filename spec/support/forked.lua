-- A program that forks while it profiles itself: luajit forked.lua FILE
--
-- The child prints whether a session runs in it and whether it can run one of
-- its own, works, and ends. The parent goes on, stops, and prints its samples.

local sysprof = require "sysprof"
local work = require "spec.support.work"
local ffi = require "ffi"

ffi.cdef [[
int fork(void);
int waitpid(int pid, int *status, int options);
]]

local path = arg[1]
assert(sysprof.start { mode = "C", interval = 1, path = path })
work.until_samples(sysprof, 50)

local pid = ffi.C.fork()
if pid == 0 then
  io.write("child running ", tostring(sysprof.report().running), "\n")
  io.write("child stop ", tostring((sysprof.stop())), "\n")
  local ok, message = sysprof.start { mode = "C", interval = 1, path = path .. ".child" }
  io.write("child start ", tostring(ok or message), "\n")
  work.until_samples(sysprof, 50)
  io.write("child stop ", tostring((sysprof.stop())), "\n")
  os.exit(0, true)
end

local status = ffi.new "int[1]"
ffi.C.waitpid(pid, status, 0)
io.write("child's status ", status[0], "\n")
work.until_samples(sysprof, sysprof.report().samples + 50)
assert(sysprof.stop())
io.write("parent samples ", sysprof.report().samples, "\n")
