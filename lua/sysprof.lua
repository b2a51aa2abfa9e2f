-- What `require "sysprof"` gives: start, stop, report and version of the
-- recorder, which is the native module `sysprof_core`. Options are checked there.
--
-- The same functions become the global `misc.sysprof`, where programs written
-- for Tarantool look for them. A host that has a `misc.sysprof` of its own
-- keeps it.

local core = require "sysprof_core"

local sysprof = {
  start = core.start,
  stop = core.stop,
  report = core.report,
  version = core.version,
}

-- Raw access: a host may guard its globals, and neither looking nor adding
-- ours is a mistake that the guard is there to find.
local misc = rawget(_G, "misc")
if misc == nil then
  misc = {}
  rawset(_G, "misc", misc)
end
if type(misc) == "table" and misc.sysprof == nil then
  misc.sysprof = sysprof
end

return sysprof
