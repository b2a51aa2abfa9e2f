-- A program that profiles itself and then ends in a way of its own:
--
--   luajit ended.lua FILE SAMPLES WAY
--
-- Works until SAMPLES samples of 1 ms are taken, prints how many there are and
-- ends by WAY, one of the names in `ways`, without calling stop.

local sysprof = require "sysprof"
local work = require "spec.support.work"
local ffi = require "ffi"

ffi.cdef [[
int kill(int pid, int signal);
int getpid(void);
]]

local path, samples, way = arg[1], tonumber(arg[2]), arg[3]

local ways = {
  ["end"] = function() end,
  exit = function() os.exit(3) end,
  ["exit, state closed"] = function() os.exit(3, true) end,
  error = function() error "it ends by an error" end,
  ["error in a coroutine"] = function()
    coroutine.wrap(function() error "it ends by an error" end)()
  end,
  -- Nobody can put anything in order after this one.
  SIGKILL = function() ffi.C.kill(ffi.C.getpid(), 9) end,
  SIGTERM = function() ffi.C.kill(ffi.C.getpid(), 15) end,
}

assert(sysprof.start { mode = "C", interval = 1, path = path })
work.until_samples(sysprof, samples)
io.write(sysprof.report().samples, "\n")
io.flush()
assert(ways[way], way)()
