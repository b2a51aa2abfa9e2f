-- Chunks loaded at run time, collected again, and stripped of their lines.
return function()
  local sum = 0
  for i = 1, 4 do
    local f = assert(loadstring("local n = ...\n\nreturn n * " .. i, "=chunk"))
    sum = sum + f(i)
  end
  local source = "local function inner(x)\n return x + 1\nend\nreturn inner"
  local inner = assert(loadstring(source, "@made.lua"))()
  sum = sum + inner(1)
  local stripped = assert(loadstring(string.dump(assert(loadstring("return ... + 1")), true)))
  sum = sum + stripped(2)
  pcall(assert(loadstring("error('from a chunk')")))
  loadstring("not lua at all")
  return sum
end
