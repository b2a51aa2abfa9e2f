-- A session in a packaged host: where the profile goes is in the environment,
-- and what was counted is left beside it, `name number` a line.

local sysprof = require "sysprof"

local profiled = {}

local SAMPLES = 500
local path = os.getenv "SYSPROF_PROFILE"

function profiled.start(options)
  assert(sysprof.start {
    mode = "C", interval = options and options.interval or 1, clock = options and options.clock, path = path,
  })
end

-- Whether there are samples enough to see the work in them.
function profiled.enough()
  return sysprof.report().samples >= SAMPLES
end

function profiled.stop()
  assert(sysprof.stop())
  local report = sysprof.report()
  local file = assert(io.open(path .. ".report", "w"))
  file:write("samples ", report.samples, "\n")
  for _, counts in ipairs { report.vmstate, report.without_stack } do
    for name, n in pairs(counts) do file:write(name, " ", n, "\n") end
  end
  file:close()
end

return profiled
