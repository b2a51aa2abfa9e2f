-- What the specs of failures ask of the system: limits, forks, filters of system
-- calls. x86-64 Linux, as the recorder is.

local ffi = require "ffi"

ffi.cdef [[
struct spec_rlimit { unsigned long soft, hard; };
int getrlimit(int resource, struct spec_rlimit *limit);
int setrlimit(int resource, const struct spec_rlimit *limit);

struct spec_filter { uint16_t code; uint8_t jt, jf; uint32_t k; };
struct spec_program { unsigned short len; struct spec_filter *filter; };
int prctl(int option, unsigned long, unsigned long, unsigned long, unsigned long);

int fork(void);
int waitpid(int pid, int *status, int options);
int execvp(const char *file, const char *const argv[]);
void _exit(int status);
unsigned int geteuid(void);
int seteuid(unsigned int user);
]]

local posix = {}

-- Numbers of limits.
posix.FSIZE, posix.NOFILE, posix.AS, posix.SIGPENDING = 1, 7, 9, 11

-- Sets the soft limit `resource` and returns what it was.
function posix.limit(resource, value)
  local limit = ffi.new "struct spec_rlimit"
  assert(ffi.C.getrlimit(resource, limit) == 0)
  local before = limit.soft
  limit.soft = value
  assert(ffi.C.setrlimit(resource, limit) == 0)
  return before
end

-- A field of /proc/self/status, as a number.
function posix.status(field)
  for line in io.lines "/proc/self/status" do
    local value = line:match("^" .. field .. ":%s*(%d+)")
    if value then return tonumber(value) end
  end
  error("no " .. field)
end

-- The numbers of system calls that a clock is made with.
local CALLS = { perf_event_open = 298, timer_create = 222, setitimer = 38 }

-- Has the kernel refuse these system calls, from now on, with EPERM.
function posix.refuse(...)
  local names = { ... }
  local filter = ffi.new("struct spec_filter[?]", #names + 3)
  local LOAD, EQUAL, RETURN, ALLOW, EPERM = 0x20, 0x15, 0x06, 0x7fff0000, 0x00050001
  filter[0] = { LOAD, 0, 0, 0 }
  for i, name in ipairs(names) do filter[i] = { EQUAL, #names - i + 1, 0, assert(CALLS[name]) } end
  filter[#names + 1] = { RETURN, 0, 0, ALLOW }
  filter[#names + 2] = { RETURN, 0, 0, EPERM }
  local program = ffi.new("struct spec_program", #names + 3, filter)
  local NO_NEW_PRIVILEGES, SECCOMP, MODE_FILTER = 38, 22, 2
  assert(ffi.C.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0) == 0)
  local address = ffi.cast("unsigned long", ffi.cast("void *", program))
  assert(ffi.C.prctl(SECCOMP, MODE_FILTER, address, 0, 0) == 0, "no filters of system calls here")
end

-- Runs `child` in a fork and returns its exit code, or minus the signal.
function posix.fork(child)
  io.flush()
  local pid = ffi.C.fork()
  if pid == 0 then
    child()
    ffi.C._exit(0)
  end
  local status = ffi.new "int[1]"
  assert(ffi.C.waitpid(pid, status, 0) == pid)
  local signal = status[0] % 128
  return signal == 0 and math.floor(status[0] / 256) or -signal
end

return posix
