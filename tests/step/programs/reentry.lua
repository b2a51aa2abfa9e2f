-- Lua in C in Lua in coroutines in callbacks, and errors out of the middle.
local function sorted(n, less)
  local t = {}
  for i = 1, n do t[i] = (i * 7) % n end
  table.sort(t, less)
  return t
end
local function through_gsub(f)
  return (string.gsub("ab", "%w", function(c) return f(c) end))
end
local function in_coroutine(f, ...)
  local co = coroutine.create(f)
  local ok, value = coroutine.resume(co, ...)
  return value
end
return function()
  sorted(4, function(a, b)
    return through_gsub(function(c) return c .. tostring(a < b) end) and a < b
  end)
  through_gsub(function(c)
    return in_coroutine(function(x)
      return through_gsub(function(y) return x .. y end)
    end, c)
  end)
  in_coroutine(function()
    local ok = pcall(sorted, 3, function() error("out") end)
    return in_coroutine(function() return sorted(3)[1] end)
  end)
  pcall(through_gsub, function(c)
    in_coroutine(function() error("lost") end)
    error(setmetatable({}, { __tostring = function() return c end }))
  end)
  local t = setmetatable({}, { __index = function(_, k) return through_gsub(function(c) return k end) end })
  return t.x, t.y
end
