-- Steps through one program and prints what came of it.
-- Usage: luajit run.lua PROGRAM.lua [jit]
local stepper = require "sysprof_stepper"
local program, compiled = arg[1], arg[2] == "jit"

if not compiled then jit.off() end
local body, clock, before, check = assert(loadfile(program))()
local counts, wrong = stepper.check(body, compiled, clock, before)
if not counts then
  io.stderr:write(wrong, "\n")
  os.exit(2)
end
-- What a program knows of itself besides the stack.
local problem = compiled and check and check(counts)
if problem then
  counts.wrong = counts.wrong + 1
  wrong = wrong .. problem .. "\n"
end
-- What was compiled, by how it ends, as LuaJIT itself has it.
local ends = compiled and require "jit.util".traceinfo or function() end
for trace = 1, 1000 do
  local info = ends(trace)
  if info then
    local name = "traces_" .. info.linktype:gsub("%W", "_")
    counts[name] = (counts[name] or 0) + 1
  end
end
local names = {}
for name, count in pairs(counts) do
  if type(count) == "number" then names[#names + 1] = name end
end
table.sort(names)
for _, name in ipairs(names) do print(name, counts[name]) end
io.write(wrong)
