-- Runs in a traced LuaJIT before the program of a case: starts a session whose
-- clock does not tick while a test lasts, and waits for the tracer. The
-- environment says where the recorder and the stream are.

package.preload.sysprof_core =
  assert(package.loadlib(os.getenv "SYSPROF_RECORDER", "luaopen_sysprof_core"))
local sysprof = require "sysprof"

local HOUR = 3600 * 1000
assert(sysprof.start { mode = "C", clock = "wall", interval = HOUR, path = os.getenv "SYSPROF_PROFILE" })

io.write "ready\n"
io.flush()
assert(io.read() == "go")
