-- Work for the profiler to see. Specs never sleep: they work until the profiler
-- has counted what they wait for, and fail when it does not.

local work = {}

-- About a millisecond of computing.
function work.piece()
  local sum = 0
  for i = 1, 300000 do sum = (sum + i * 7) % 1000003 end
  return sum
end

-- Works until `condition` holds. The bound is far above what any clock needs:
-- half a minute or so of work.
function work.until_true(condition)
  for _ = 1, 20000 do
    if condition() then return end
    work.piece()
  end
  error("the profiler did not count what was waited for", 2)
end

-- Works until the running session has `n` samples.
function work.until_samples(sysprof, n)
  work.until_true(function() return sysprof.report().samples >= n end)
end

return work
