-- Reads a profile through the `sysprof` command, as a user does.

local shell = require "spec.support.shell"

local profile = {}

-- What the command prints; it must have nothing to complain about.
local function sysprof(arguments, path)
  local code, out, err = shell.run(".", ("sysprof %s %s"):format(arguments, shell.quote(path)))
  assert(code == 0 and err == "", err)
  return out
end

local function number(text)
  return tonumber((text:match("^[%d,]+"):gsub(",", "")))
end

-- What `sysprof info` says: whether the file is whole, samples, mode and clock,
-- and the samples by VM state.
function profile.info(path)
  local rows = {}
  for line in sysprof("info", path):gmatch "[^\n]+" do
    local key, value = line:match "^(.-)  +(.*)$"
    rows[assert(key, line)] = value
  end
  local states = {}
  for key, value in pairs(rows) do
    if key:match "^%u+$" then states[key] = number(value) end
  end
  return {
    complete = rows.file == "whole",
    samples = number(rows.samples),
    mode = rows.mode,
    clock = rows.clock,
    states = states,
  }
end

-- The functions of `sysprof report --by function`: name to total, in percent.
function profile.totals(path)
  local totals = {}
  for line in sysprof("report --by function --limit 1000", path):gmatch "[^\n]+" do
    local total, name = line:match "^ +[%d.]+%% +([%d.]+)%% +[%d,]+  (%S+) %("
    if name then totals[name] = tonumber(total) end
  end
  return totals
end

return profile
