-- Fifty libraries that are loaded while a session runs, each of which works for
-- a while: how long their code is unknown, and what the stream takes for it.

local sysprof = require "sysprof"
local support = require "benches.lua.support"

local LIBRARIES, INTERVAL = 50, 1

local folder = os.tmpname()
os.remove(folder)
assert(os.execute("mkdir " .. folder))

local source = assert(io.open(folder .. "/work.c", "w"))
source:write [[
static double step(double x) { return x * 1.0000001 + 0.5; }
double work_sum;
__attribute__((noinline)) void work_inner(void)
{
  double x = work_sum;
  for (int i = 0; i < 1000; i++) x = step(x);
  work_sum = x > 1e9 ? 0 : x;
}
int work(void *L)
{
  (void)L;
  for (int i = 0; i < 20000; i++) work_inner();
  return 0;
}
]]
source:close()
assert(os.execute(("cc -O1 -g -shared -fPIC -o %s/work.so %s/work.c"):format(folder, folder)))
for i = 1, LIBRARIES do
  assert(os.execute(("cp %s/work.so %s/work%d.so"):format(folder, folder, i)))
end

local path = folder .. "/profile"
assert(sysprof.start { mode = "C", interval = INTERVAL, path = path })
for i = 1, LIBRARIES do
  local work = assert(package.loadlib(("%s/work%d.so"):format(folder, i), "work"))
  work()
end
assert(sysprof.stop())
local report = sysprof.report()
local lost = 0
for _, n in pairs(report.without_stack) do lost = lost + n end

-- The samples of code that was not known yet; it must be named all the same.
local unknown, named = 0, 0
local pipe = assert(io.popen("sysprof collapse --native " .. path))
for line in pipe:lines() do
  local samples = tonumber(line:match "%d+$")
  if line:find("[native stack ends: unknown module]", 1, true) then
    unknown = unknown + samples
    if line:find("unknown module];work", 1, true) then named = named + samples end
  end
end
pipe:close()
local file = assert(io.open(path, "rb"))
local bytes = file:seek "end"
file:close()
os.execute("rm -rf " .. folder)

support.line(("samples of %d libraries loaded while it runs"):format(LIBRARIES), tostring(report.samples), "-")
support.line("  without a stack", tostring(lost), "0")
support.line("  milliseconds a library whose module was not known yet",
  ("%.1f"):format(unknown * INTERVAL / LIBRARIES), "at most 10")
support.line("  of these that name the function all the same",
  unknown == 0 and "100 %" or ("%.0f %%"):format(100 * named / unknown), "100 %")
support.line("  bytes a sample, definitions included", ("%.1f"):format(bytes / report.samples), "-")
