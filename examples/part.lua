-- Profiles one part of a program from inside it, and says what the VM did:
--
--   luajit examples/part.lua
--   sysprof report part.bin

local sysprof = require "sysprof"

local function words(text)
  local count = {}
  for word in text:gmatch "%a+" do count[word] = (count[word] or 0) + 1 end
  return count
end

local function most_used(count)
  local list = {}
  for word, n in pairs(count) do list[#list + 1] = { word = word, n = n } end
  table.sort(list, function(a, b)
    if a.n ~= b.n then return a.n > b.n end
    return a.word < b.word
  end)
  return list[1]
end

local parts = {}
for i = 1, 20000 do parts[i] = ("w%s x%s the"):format(("a"):rep(i % 40), ("b"):rep(i % 30)) end
local text = table.concat(parts, " ")

-- From here on it is of interest.
assert(sysprof.start { mode = "C", interval = 1, path = "part.bin" })
local best
for _ = 1, 20 do best = most_used(words(text)) end
assert(sysprof.stop())

print(("most used: %s, %d times"):format(best.word, best.n))
local report = sysprof.report()
print(("%d samples, clock %s"):format(report.samples, report.clock))
for state, n in pairs(report.vmstate) do
  if n > 0 then print(("  %-7s %5.1f %%"):format(state, 100 * n / report.samples)) end
end
