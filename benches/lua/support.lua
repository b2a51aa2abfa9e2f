-- What the measures share: exact clocks, and a handler that does nothing, which
-- is what the profiler's cost is counted from: a signal alone costs microseconds
-- on some machines, and that is the kernel's part.

local ffi = require "ffi"

ffi.cdef [[
typedef struct { long sec, nsec; } bench_timespec;
typedef struct { bench_timespec interval, value; } bench_itimerspec;
typedef struct { void *value; int signo, notify; int pad[12]; } bench_sigevent;
int clock_gettime(int clock, bench_timespec *time);
int timer_create(int clock, bench_sigevent *event, void **timer);
int timer_settime(void *timer, int flags, const bench_itimerspec *new, bench_itimerspec *old);
int timer_delete(void *timer);
void (*signal(int number, void (*handler)(int)))(int);
int raise(int number);
int abs(int);
]]

local C = ffi.C
local CLOCK_MONOTONIC, CLOCK_THREAD_CPUTIME_ID = 1, 3
local SIGPROF, SIGEV_SIGNAL = 27, 0

local support = { SIGPROF = SIGPROF }

local time = ffi.new "bench_timespec"
local function read(clock)
  C.clock_gettime(clock, time)
  return tonumber(time.sec) + tonumber(time.nsec) / 1e9
end

-- Seconds of CPU time of this thread, and of the wall.
function support.cpu() return read(CLOCK_THREAD_CPUTIME_ID) end
function support.wall() return read(CLOCK_MONOTONIC) end

-- Calls `body` while SIGPROF goes to a handler that does nothing: `abs` takes
-- the signal's number and has no effect.
function support.with_empty_handler(body)
  local before = C.signal(SIGPROF, ffi.cast("void (*)(int)", C.abs))
  local result = body()
  -- No signal is left on its way: those of this thread arrive before a system
  -- call returns. A profiler takes the signal only if nobody has it.
  C.signal(SIGPROF, before)
  return result
end

-- Calls `body` while a timer of the wall clock sends SIGPROF to a handler that
-- does nothing, every `interval` milliseconds.
function support.with_empty_timer(interval, body)
  return support.with_empty_handler(function()
    local event = ffi.new("bench_sigevent", { signo = SIGPROF, notify = SIGEV_SIGNAL })
    local timer = ffi.new "void *[1]"
    assert(C.timer_create(CLOCK_MONOTONIC, event, timer) == 0, "timer_create failed")
    local every = ffi.new "bench_itimerspec"
    every.interval.nsec, every.value.nsec = interval * 1e6, interval * 1e6
    assert(C.timer_settime(timer[0], 0, every, nil) == 0, "timer_settime failed")
    local result = body()
    C.timer_delete(timer[0])
    return result
  end)
end

-- The middle one of a list of numbers.
function support.median(list)
  table.sort(list)
  return list[math.floor((#list + 1) / 2)]
end

-- A temporary file's name, removed by the caller.
function support.file() return os.tmpname() end

-- One line of the result.
function support.line(what, value, wanted)
  print(("%-58s %14s   (aim: %s)"):format(what, value, wanted))
end

return support
