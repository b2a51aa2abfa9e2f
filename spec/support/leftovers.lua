-- What a process has that a profiler may forget to give back: descriptors,
-- threads, timers, signal handlers, mapped files. Two of these are compared.

local lfs = require "lfs"

-- The names in a folder of /proc, with what they point to.
local function entries(folder)
  local list = {}
  for name in lfs.dir(folder) do
    if name ~= "." and name ~= ".." then
      -- The descriptor that reads /proc/self/fd is gone by now: no target.
      local target = lfs.symlinkattributes(folder .. "/" .. name, "target")
      if target then list[#list + 1] = name .. " " .. target end
    end
  end
  table.sort(list)
  return list
end

-- How many threads there are that do not end: one that was joined may be seen for a
-- moment, as the kernel tells who waits for it before it takes it off the list.
local function threads()
  -- PF_EXITING of the field `flags` (proc_pid_stat(5)).
  local EXITING = 4
  local n = 0
  for id in lfs.dir "/proc/self/task" do
    local file = id:find "^%d" and io.open("/proc/self/task/" .. id .. "/stat")
    local stat = file and file:read "*a"
    if file then file:close() end
    local flags = stat and stat:match "%) %a %-?%d+ %-?%d+ %-?%d+ %-?%d+ %-?%d+ (%d+)"
    if flags and bit.band(tonumber(flags), EXITING) == 0 then n = n + 1 end
  end
  return n
end

-- The lines of a file of /proc that `keep` turns into something.
local function lines(path, keep)
  local list = {}
  for line in io.lines(path) do
    list[#list + 1] = keep(line)
  end
  return list
end

return function()
  return {
    descriptors = entries "/proc/self/fd",
    threads = threads(),
    timers = lines("/proc/self/timers", function(line) return line:match "^ID:.*" end),
    signals = lines("/proc/self/status", function(line) return line:match "^Sig[BIC]%a+:.*" end),
  }
end
