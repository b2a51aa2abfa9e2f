-- How long start and stop take together, in a program with 10,000 functions.

local sysprof = require "sysprof"
local support = require "benches.lua.support"

local source = {}
for i = 1, 10000 do source[i] = ("function t.f%d(a) return a + %d end"):format(i, i) end
local chunk = assert(loadstring("local t = {}\n" .. table.concat(source, "\n") .. "\nreturn t"))
local functions = chunk()
assert(functions.f10000(1) == 10001)

local path, times = support.file(), {}
for round = 1, 21 do
  local began = support.wall()
  assert(sysprof.start { mode = "C", path = path })
  assert(sysprof.stop())
  times[round] = (support.wall() - began) * 1000
end
os.remove(path)
support.line("start and stop with 10,000 functions", ("%.2f ms"):format(support.median(times)), "at most 20 ms")
