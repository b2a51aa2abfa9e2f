-- A recursive-descent parser for a little of JSON, and its printer.
local parse
local function space(s, i) return s:match("^%s*()", i) end
local function array(s, i)
  local t = {}
  i = space(s, i + 1)
  while s:sub(i, i) ~= "]" do
    t[#t + 1], i = parse(s, i)
    i = space(s, i)
    if s:sub(i, i) == "," then i = space(s, i + 1) end
  end
  return t, i + 1
end
local function object(s, i)
  local t = {}
  i = space(s, i + 1)
  while s:sub(i, i) ~= "}" do
    local key, value
    key, i = parse(s, i)
    i = space(s, i)
    if s:sub(i, i) ~= ":" then error("colon expected at " .. i) end
    value, i = parse(s, i + 1)
    t[key] = value
    i = space(s, i)
    if s:sub(i, i) == "," then i = space(s, i + 1) end
  end
  return t, i + 1
end
function parse(s, i)
  i = space(s, i)
  local c = s:sub(i, i)
  if c == "[" then return array(s, i) end
  if c == "{" then return object(s, i) end
  if c == '"' then
    local text, after = s:match('^"([^"]*)"()', i)
    return text, after
  end
  local number, after = s:match("^(-?[%d.]+)()", i)
  if not number then error("unexpected " .. c) end
  return tonumber(number), after
end
local function show(v)
  if type(v) ~= "table" then return tostring(v) end
  local out = {}
  for i = 1, #v do out[i] = show(v[i]) end
  if v.k then out[#out + 1] = "k:" .. show(v.k) end
  return "(" .. table.concat(out, " ") .. ")"
end
return function()
  local value = parse('[1, 2.5, {"k": [3, -4], "z": "text"}, "s", []]', 1)
  local text = show(value)
  local ok = pcall(parse, '{"k" 1}', 1)
  ok = pcall(parse, "[?]", 1)
  return text, ok
end
