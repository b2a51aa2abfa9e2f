-- JSON: a text of many records, read by a parser of recursive descent.
-- Expected: the time goes to the leaves. `parse_string` leads, by the line that
-- finds a string's end and that which cuts the string out, as a record has eleven
-- strings, keys included; `skip_space`, called around each token, follows, then
-- `parse_number`.

local rounds = tonumber(arg and arg[1]) or 12

local parse_value

-- The position of the first character that is not white space, and its byte.
local function skip_space(text, at)
  local byte = text:byte(at)
  while byte == 32 or byte == 10 do
    at = at + 1
    byte = text:byte(at)
  end
  return at, byte
end

local ESCAPES = { n = "\n", t = "\t" }

local function parse_string(text, at)
  local last = text:find('["\\]', at + 1)
  if text:byte(last) == 34 then return text:sub(at + 1, last - 1), last + 1 end
  local parts, first = {}, at + 1
  while text:byte(last) ~= 34 do
    local escaped = text:sub(last + 1, last + 1)
    parts[#parts + 1] = text:sub(first, last - 1)
    parts[#parts + 1] = ESCAPES[escaped] or escaped
    first = last + 2
    last = text:find('["\\]', first)
  end
  parts[#parts + 1] = text:sub(first, last - 1)
  return table.concat(parts), last + 1
end

local function parse_number(text, at)
  local _, last = text:find("^[-+%d.eE]+", at)
  return tonumber(text:sub(at, last)), last + 1
end

local function parse_array(text, at)
  local array, n, byte = {}, 0, nil
  at, byte = skip_space(text, at + 1)
  while byte ~= 93 do
    n = n + 1
    array[n], at = parse_value(text, at)
    at, byte = skip_space(text, at)
    if byte == 44 then at, byte = skip_space(text, at + 1) end
  end
  return array, at + 1
end

local function parse_object(text, at)
  local object, byte = {}, nil
  at, byte = skip_space(text, at + 1)
  while byte ~= 125 do
    local key
    key, at = parse_string(text, at)
    at = skip_space(text, at)
    at = skip_space(text, at + 1)
    object[key], at = parse_value(text, at)
    at, byte = skip_space(text, at)
    if byte == 44 then at, byte = skip_space(text, at + 1) end
  end
  return object, at + 1
end

function parse_value(text, at)
  local byte = text:byte(at)
  if byte == 34 then return parse_string(text, at) end
  if byte == 123 then return parse_object(text, at) end
  if byte == 91 then return parse_array(text, at) end
  if byte == 116 then return true, at + 4 end
  if byte == 102 then return false, at + 5 end
  if byte == 110 then return nil, at + 4 end
  return parse_number(text, at)
end

local RECORD = [[
{ "id": %d, "name": "number %d", "note": "two\nlines \"%d\"", "price": %.2f,
  "tags": ["red", "green", "blue%d"], "sold": %s }]]

local function make_text(n)
  local records = {}
  for i = 1, n do
    records[i] = RECORD:format(i, i, i, i * 1.25, i % 100, tostring(i % 3 == 0))
  end
  return "[" .. table.concat(records, ",\n") .. "]"
end

local text = make_text(8000)
local sum, sold = 0, 0
for _ = 1, rounds do
  for _, record in ipairs((parse_value(text, 1))) do
    sum = sum + record.price + #record.name + #record.note + #record.tags
    if record.sold then sold = sold + 1 end
  end
end
print(("%d bytes, %d times: sum %.2f, %d sold"):format(#text, rounds, sum, sold))
