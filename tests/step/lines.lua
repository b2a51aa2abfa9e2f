-- What the lines of a stepped program must have done, where that is known exactly.
local lines = {}

-- LuaJITs from before 2021 do not say which calls a trace has in it.
function lines.told_apart(counts)
  return counts.ancestors <= counts.in_traces / 2
end

-- Whether each line in `wanted` (`{ [line] = how often }`) of `file` has, of what was
-- counted as `what`, that many times the same number, not 0; if not, what they have.
function lines.compare(counts, what, file, wanted)
  local found, unit = {}, nil
  local right = true
  for line, times in pairs(wanted) do
    local count = counts[what] and counts[what][file .. ":" .. line] or 0
    found[#found + 1] = ("%d: %d of %d"):format(line, count, times)
    if times > 0 then
      unit = unit or count / times
      right = right and count > 0 and count == times * unit
    else
      right = right and count == 0
    end
  end
  if not right then
    table.sort(found)
    return ("%s by line of %s: %s"):format(what, file, table.concat(found, ", "))
  end
end

return lines
