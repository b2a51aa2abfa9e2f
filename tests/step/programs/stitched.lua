-- Stitched traces: calls that are not compiled, in a loop and an inlined call.
local clock = { 0 }
local function describe(t, i)
  local text = string.format("%5d %s", i, "x")
  t.n = t.n + #text
  return text:gsub("x", "y")
end
return function()
  local t = { n = 0 }
  for i = 1, 90 do
    clock[1] = clock[1] + 1
    t.n = t.n + 1
    local s = describe(t, i)
    t.n = t.n + #s
  end
  for i = 1, 90 do
    clock[1] = clock[1] + 1
    local ok, err = pcall(error, i)
    t.n = t.n + (ok and 0 or err)
    local f = loadstring("return 1")
    t.n = t.n + (f and 1 or 0)
  end
  return t.n
end, clock
