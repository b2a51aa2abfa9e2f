-- A program that forks while it profiles itself: luajit forked.lua FILE
--
-- The child prints whether a session runs in it, what it knows of its parent's
-- and has open of it, and whether it can run one of its own, works, and ends. The
-- parent goes on, stops, and prints its samples.

local sysprof = require "sysprof"
local work = require "spec.support.work"
local ffi = require "ffi"

ffi.cdef [[
int fork(void);
int waitpid(int pid, int *status, int options);
long readlink(const char *path, char *target, size_t size);
]]

-- How many of this process's first descriptors are of the file at `path`.
local function descriptors(path)
  local target, count = ffi.new "char[4096]", 0
  for i = 0, 255 do
    local length = tonumber(ffi.C.readlink("/proc/self/fd/" .. i, target, 4096))
    if length > 0 and ffi.string(target, length) == path then count = count + 1 end
  end
  return count
end

local path = arg[1]
-- Of an earlier session the parent has a report.
assert(sysprof.start { mode = "D", interval = 1 })
work.until_samples(sysprof, 5)
assert(sysprof.stop())
assert(sysprof.start { mode = "C", interval = 1, path = path })
work.until_samples(sysprof, 50)
assert(descriptors(path) == 1)

local pid = ffi.C.fork()
if pid == 0 then
  io.write("child running ", tostring(sysprof.report().running), "\n")
  io.write("child samples ", sysprof.report().samples, "\n")
  io.write("child descriptors ", descriptors(path), "\n")
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
