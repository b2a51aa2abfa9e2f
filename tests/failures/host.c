/* A host of LuaJIT that does to a session what hosts do: threads, forks, signals,
 * limits. One case for each, by its name:
 *
 *   host CASE PROFILE
 *
 * What a case finds out it prints, a fact a line; main.rs knows what is right.
 * The environment says where the recorder is (SYSPROF_RECORDER, LUA_PATH).
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(condition) \
  ((condition) ? (void)0 : (fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition), _exit(99)))

static const char *profile;

/* Lua ---------------------------------------------------------------------- */

static const char PRELUDE[] =
  "package.preload.sysprof_core ="
  "  assert(package.loadlib(os.getenv 'SYSPROF_RECORDER', 'luaopen_sysprof_core'))\n"
  "sysprof = require 'sysprof'\n"
  /* About a tenth of a millisecond, most of it calls. */
  "local function leaf(x) return (x * 7) % 1000003 end\n"
  "function piece() local x = 1 for i = 1, 3000 do x = leaf(x + i) end return x end\n"
  "function work(samples)\n"
  "  local until_then = sysprof.report().samples + samples\n"
  "  while sysprof.report().samples < until_then do piece() end\n"
  "end\n"
  "function answer(...)\n"
  "  local said = {}\n"
  "  for i = 1, select('#', ...) do said[i] = tostring((select(i, ...))) end\n"
  "  return table.concat(said, ' ')\n"
  "end\n";

static void run(lua_State *L, const char *source) {
  if (luaL_dostring(L, source)) {
    fprintf(stderr, "%s\n", lua_tostring(L, -1));
    _exit(98);
  }
  lua_settop(L, 0);
}

static lua_State *vm(void) {
  lua_State *L = luaL_newstate();
  CHECK(L);
  luaL_openlibs(L);
  lua_pushstring(L, profile);
  lua_setglobal(L, "PROFILE");
  run(L, PRELUDE);
  return L;
}

/* What a call of the recorder's says, as words. The caller keeps it till the next. */
static const char *ask(lua_State *L, const char *call) {
  static __thread char said[512];
  char source[512];
  snprintf(source, sizeof source, "return answer(%s)", call);
  CHECK(!luaL_dostring(L, source));
  snprintf(said, sizeof said, "%s", lua_tostring(L, -1));
  lua_settop(L, 0);
  return said;
}

#define START "sysprof.start { mode = 'C', interval = 1, path = PROFILE }"
#define START_FAST "sysprof.start { mode = 'C', interval = 0.05, path = PROFILE }"

static void say(lua_State *L, const char *name, const char *call) {
  printf("%s %s\n", name, ask(L, call));
  fflush(stdout);
}

static void started(lua_State *L, const char *call) { CHECK(!strcmp(ask(L, call), "true")); }

/* Signals ------------------------------------------------------------------- */

static volatile sig_atomic_t host_was_called;

static void host_handler(int signal) {
  (void)signal;
  host_was_called++;
}

static void *page;

/* Lets the access that it is called for succeed. */
static void host_fault_handler(int signal, siginfo_t *info, void *context) {
  (void)signal, (void)context;
  host_was_called++;
  if (info->si_addr != page) _exit(97);
  mprotect(page, 4096, PROT_READ);
}

static void own_fault(void) {
  CHECK(!mprotect(page, 4096, PROT_NONE));
  CHECK(*(volatile char *)page == 0);
}

static void take_segv(struct sigaction *before) {
  struct sigaction action = { 0 };
  action.sa_sigaction = host_fault_handler;
  action.sa_flags = SA_SIGINFO;
  if (!page) page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(page != MAP_FAILED);
  CHECK(!sigaction(SIGSEGV, &action, before));
}

static void say_handler(const char *name, int signal) {
  struct sigaction now;
  CHECK(!sigaction(signal, NULL, &now));
  const char *whose = now.sa_handler == SIG_DFL ? "default"
    : now.sa_handler == SIG_IGN ? "ignored"
    : now.sa_handler == host_handler || now.sa_sigaction == host_fault_handler ? "host's"
    : "another";
  printf("%s %s\n", name, whose);
  fflush(stdout);
}

/* Time ---------------------------------------------------------------------- */

/* The kernel's time of day as another process has set it, after a step. */
static volatile time_t stepped_by;

__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, struct timespec *time) {
  int result = (int)syscall(SYS_clock_gettime, clock, time);
  if (clock == CLOCK_REALTIME) time->tv_sec += stepped_by;
  return result;
}

static double cpu_ms(void) {
  struct timespec time;
  syscall(SYS_clock_gettime, CLOCK_THREAD_CPUTIME_ID, &time);
  return time.tv_sec * 1e3 + time.tv_nsec / 1e6;
}

static void spin(double ms) {
  for (double until = cpu_ms() + ms; cpu_ms() < until;) {}
}

/* The cases ------------------------------------------------------------------ */

static void signal_taken_before(void) {
  signal(SIGPROF, host_handler);
  lua_State *L = vm();
  say(L, "start", START);
  run(L, "work(50)");
  raise(SIGPROF);
  say(L, "stop", "sysprof.stop()");
  printf("host called %d\n", (int)host_was_called);
  say_handler("SIGPROF", SIGPROF);
  lua_close(L);
}

static void signal_ignored(void) {
  signal(SIGPROF, SIG_IGN);
  lua_State *L = vm();
  say(L, "start", START);
  run(L, "work(50)");
  say(L, "stop", "sysprof.stop()");
  say_handler("SIGPROF", SIGPROF);
  lua_close(L);
}

static void signal_taken_during(void) {
  lua_State *L = vm();
  started(L, START);
  run(L, "work(20)");
  struct sigaction action = { 0 }, ours;
  action.sa_handler = host_handler;
  action.sa_flags = SA_RESTART;
  CHECK(!sigaction(SIGPROF, &action, &ours));
  spin(50);
  say(L, "stop", "sysprof.stop()");
  say_handler("SIGPROF", SIGPROF);
  /* It puts back what it found, as it should: now nobody's. */
  CHECK(!sigaction(SIGPROF, &ours, NULL));
  raise(SIGPROF);
  say(L, "again", START);
  run(L, "work(20)");
  say(L, "stop", "sysprof.stop()");
  say_handler("SIGPROF", SIGPROF);
  lua_close(L);
}

static void signal_blocked_before(void) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGPROF);
  pthread_sigmask(SIG_BLOCK, &set, NULL);
  lua_State *L = vm();
  say(L, "start", START);
  run(L, "work(50)");
  say(L, "stop", "sysprof.stop()");
  sigfillset(&set);
  pthread_sigmask(SIG_BLOCK, &set, NULL);
  say(L, "all blocked", START);
  pthread_sigmask(SIG_UNBLOCK, &set, NULL);
  lua_close(L);
}

static void signal_blocked_during(void) {
  lua_State *L = vm();
  started(L, START);
  run(L, "work(20)");
  run(L, "before = sysprof.report().samples");
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGPROF);
  pthread_sigmask(SIG_BLOCK, &set, NULL);
  spin(100);
  say(L, "while blocked", "sysprof.report().samples - before");
  pthread_sigmask(SIG_UNBLOCK, &set, NULL);
  /* A signal that was waiting has come, and stands for all that time. */
  say(L, "made up for", "sysprof.report().samples - before >= 90");
  pthread_sigmask(SIG_BLOCK, &set, NULL);
  spin(20);
  say(L, "stop", "sysprof.stop()");
  /* One is waiting, were it not thrown away: it would kill. */
  pthread_sigmask(SIG_UNBLOCK, &set, NULL);
  say_handler("SIGPROF", SIGPROF);
  lua_close(L);
}

static void segv_taken_during(void) {
  struct sigaction ours;
  take_segv(NULL);
  lua_State *L = vm();
  started(L, START_FAST);
  run(L, "work(200)");
  own_fault();
  printf("host called %d\n", (int)host_was_called);
  take_segv(&ours);
  run(L, "before = sysprof.report() work(2000) after = sysprof.report()");
  say(L, "unreadable", "after.without_stack.unreadable - before.without_stack.unreadable >= 2000");
  printf("host called %d\n", (int)host_was_called);
  own_fault();
  printf("host called %d\n", (int)host_was_called);
  say(L, "stop", "sysprof.stop()");
  say_handler("SIGSEGV", SIGSEGV);
  /* It puts ours back, behind which the one before still is: also in a session
   * that starts only now. */
  CHECK(!sigaction(SIGSEGV, &ours, NULL));
  own_fault();
  printf("host called %d\n", (int)host_was_called);
  started(L, START_FAST);
  run(L, "work(200)");
  own_fault();
  printf("host called %d\n", (int)host_was_called);
  say(L, "stop", "sysprof.stop()");
  say_handler("SIGSEGV", SIGSEGV);
  lua_close(L);
}

static void child_says(const char *name, pid_t child) {
  int status;
  CHECK(child > 0);
  CHECK(waitpid(child, &status, 0) == child);
  printf("%s %d\n", name, WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
  fflush(stdout);
}

static char *const TRUE[] = { "true", NULL };
extern char **environ;

static void children(void) {
  lua_State *L = vm();
  started(L, "sysprof.start { mode = 'C', interval = 0.1, path = PROFILE }");
  int failed = 0;
  for (int i = 0; i < 50; i++) {
    int status = -1;
    pid_t child;
    run(L, "for _ = 1, 10 do piece() end");
    child = vfork();
    if (child == 0) {
      execvp("true", TRUE);
      _exit(9);
    }
    failed += child < 0 || waitpid(child, &status, 0) != child || status != 0;
    failed += posix_spawnp(&child, "true", NULL, NULL, TRUE, environ) != 0;
    failed += waitpid(child, &status, 0) != child || status != 0;
  }
  printf("failed %d\n", failed);
  run(L, "work(20)");
  say(L, "stop", "sysprof.stop()");
  say(L, "samples", "sysprof.report().samples");
  lua_close(L);
}

/* Without the C library, no handler of a fork is called. */
static void raw_fork(void) {
  lua_State *L = vm();
  started(L, START);
  run(L, "work(50)");
  pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
  if (child == 0) {
    alarm(20);
    /* Twice: to one of them it is news. */
    exit(strcmp(ask(L, "sysprof.report().running"), "false") ? 1
         : strcmp(ask(L, "sysprof.stop()"), "nil profiler is not running 22") ? 2 : 5);
  }
  child_says("child", child);
  child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
  if (child == 0) {
    alarm(20);
    exit(6);
  }
  child_says("child that exits at once", child);
  run(L, "work(50)");
  say(L, "stop", "sysprof.stop()");
  say(L, "samples", "sysprof.report().samples");
  lua_close(L);
}

/* Threads -------------------------------------------------------------------- */

static volatile int rounds, ended;
static lua_State *theirs;
static pthread_barrier_t together;

static int count_round(lua_State *L) {
  rounds++;
  lua_pushboolean(L, !ended);
  return 1;
}

/* A thread with a VM of its own, under the profiler until it is told. */
static void *sampled(void *unused) {
  (void)unused;
  lua_State *L = vm();
  lua_register(L, "count_round", count_round);
  started(L, START_FAST);
  run(L, "while count_round() do piece() end");
  return L;
}

static pthread_t begin(void *(*thread)(void *), void *data) {
  pthread_t id;
  CHECK(!pthread_create(&id, NULL, thread, data));
  return id;
}

static void *busy(void *unused) {
  (void)unused;
  while (!ended) {}
  return NULL;
}

static void many_threads(void) {
  pthread_t others[4];
  for (int i = 0; i < 4; i++) others[i] = begin(busy, NULL);
  lua_State *L = vm();
  static const char *const CLOCKS[] = { "auto", "thread", "itimer" };
  for (int i = 0; i < 3; i++) {
    char start[128];
    snprintf(start, sizeof start,
             "sysprof.start { mode = 'C', interval = 1, path = PROFILE, clock = '%s' }", CLOCKS[i]);
    double began = cpu_ms();
    started(L, start);
    run(L, "work(50)");
    CHECK(!strcmp(ask(L, "sysprof.stop()"), "true"));
    /* Of all the processor time of the process it is this thread's only: a fifth. What
     * clocks make of time that a virtual machine is not given differs. */
    double samples = atof(ask(L, "sysprof.report().samples"));
    printf("%s: %s\n", CLOCKS[i], samples <= 1.5 * (cpu_ms() - began) + 2 ? "no more than its time" : "too many");
  }
  ended = 1;
  for (int i = 0; i < 4; i++) pthread_join(others[i], NULL);
  lua_close(L);
}

/* Signals that are not for the profiled thread: sent to another one, to itself. */
static void *raises(void *unused) {
  for (int i = 0; i < 100; i++) CHECK(!raise(SIGPROF));
  return unused;
}

static void stray_signals(void) {
  lua_State *L = vm();
  started(L, "sysprof.start { mode = 'C', interval = 3.6e6, path = PROFILE, clock = 'wall' }");
  pthread_join(begin(raises, NULL), NULL);
  say(L, "of another thread", "sysprof.report().samples");
  CHECK(!raise(SIGPROF));
  say(L, "of this one", "sysprof.report().samples");
  CHECK(!strcmp(ask(L, "sysprof.stop()"), "true"));
  lua_close(L);
}

static void *ends_early(void *unused) {
  (void)unused;
  lua_State *L = vm();
  started(L, START);
  run(L, "work(50)");
  return L;
}

static void thread_ends(void) {
  void *L;
  for (int i = 0; i < 10; i++) {
    pthread_join(begin(ends_early, NULL), &L);
    CHECK(!strcmp(ask(L, "sysprof.report().running"), "true"));
    CHECK(!strcmp(ask(L, "sysprof.stop()"), "true"));
    if (i == 9) say(L, "samples", "sysprof.report().samples");
    lua_close(L);
  }
  say_handler("SIGPROF", SIGPROF);
}

static int wait_for_stop(lua_State *L) {
  (void)L;
  pthread_barrier_wait(&together);
  pthread_barrier_wait(&together);
  return 0;
}

static void *waits(void *unused) {
  (void)unused;
  lua_State *L = vm();
  theirs = lua_newthread(L);
  lua_setglobal(L, "other");
  lua_register(L, "wait", wait_for_stop);
  started(L, START);
  run(L, "work(50) wait() for _ = 1, 500 do piece() end");
  say(L, "running", "sysprof.report().running");
  lua_close(L);
  return NULL;
}

static void stop_elsewhere(void) {
  pthread_barrier_init(&together, NULL, 2);
  pthread_t thread = begin(waits, NULL);
  pthread_barrier_wait(&together);
  say(theirs, "stop", "sysprof.stop()");
  pthread_barrier_wait(&together);
  pthread_join(thread, NULL);
  say_handler("SIGPROF", SIGPROF);
  say_handler("SIGTRAP", SIGTRAP);
}

static void exit_elsewhere(void) {
  begin(sampled, NULL);
  while (rounds < 100) usleep(1000);
  exit(7);
}

static void fork_elsewhere(void) {
  pthread_t thread = begin(sampled, NULL);
  while (rounds < 10) usleep(1000);
  int failed = 0;
  for (int i = 0; i < 500; i++) {
    int status;
    pid_t child = fork();
    if (child == 0) _exit(0);
    failed += child < 0 || waitpid(child, &status, 0) != child || status != 0;
  }
  printf("failed %d\n", failed);
  ended = 1;
  void *L;
  pthread_join(thread, &L);
  say(L, "stop", "sysprof.stop()");
  lua_close(L);
}

static int wins[2];

static void *starts_at_once(void *number) {
  lua_State *L = vm();
  for (int i = 0; i < 300; i++) {
    pthread_barrier_wait(&together);
    const char *said = ask(L, "sysprof.start { mode = 'D' }");
    int won = !strcmp(said, "true");
    CHECK(won || !strcmp(said, "nil profiler is running already 22"));
    pthread_barrier_wait(&together);
    wins[*(int *)number] += won;
    /* Between the two, the host's handler must not have been lost. */
    if (won) own_fault();
    if (won) CHECK(!strcmp(ask(L, "sysprof.stop()"), "true"));
    pthread_barrier_wait(&together);
  }
  lua_close(L);
  return NULL;
}

static void start_at_once(void) {
  int numbers[2] = { 0, 1 };
  take_segv(NULL);
  pthread_barrier_init(&together, NULL, 2);
  pthread_t other = begin(starts_at_once, &numbers[1]);
  starts_at_once(&numbers[0]);
  pthread_join(other, NULL);
  printf("sessions %d\n", wins[0] + wins[1]);
  printf("host called %d\n", (int)host_was_called);
  say_handler("SIGSEGV", SIGSEGV);
}

/* Ends ------------------------------------------------------------------------ */

static void close_without_stop(void) {
  lua_State *L = vm();
  started(L, START);
  run(L, "work(50)");
  say(L, "samples", "sysprof.report().samples");
  lua_close(L);
  say_handler("SIGPROF", SIGPROF);
  say_handler("SIGSEGV", SIGSEGV);
  say_handler("SIGTRAP", SIGTRAP);
  /* The VM has closed the library: signals that come late must not miss it. */
  L = vm();
  say(L, "running", "sysprof.report().running");
  say(L, "start", "sysprof.start()");
  run(L, "work(5)");
  say(L, "stop", "sysprof.stop()");
  lua_close(L);
}

/* Memory ------------------------------------------------------------------------ */

static int entries(const char *folder) {
  int count = 0;
  DIR *entries = opendir(folder);
  CHECK(entries);
  while (readdir(entries)) count++;
  closedir(entries);
  return count;
}

static int lines(const char *path) {
  int count = 0, c;
  FILE *file = fopen(path, "r");
  CHECK(file);
  while ((c = fgetc(file)) != EOF) count += c == '\n';
  fclose(file);
  return count;
}

/* Kilobytes of memory that are in use. */
static long resident(void) {
  long size, pages;
  FILE *file = fopen("/proc/self/statm", "r");
  CHECK(file && fscanf(file, "%ld %ld", &size, &pages) == 2);
  fclose(file);
  return pages * 4;
}

#define CYCLES 10000

static void cycles(void) {
  alarm(300);
  lua_State *L = vm();
  run(L,
      "local modes, clocks = { 'D', 'L', 'D', 'C', 'D' }, { 'auto', 'thread', 'wall', 'itimer' }\n"
      "function cycle(i)\n"
      "  local mode = modes[i % 5 + 1]\n"
      "  assert(sysprof.start { mode = mode, clock = clocks[i % 4 + 1], path = mode ~= 'D' and PROFILE or nil })\n"
      "  if i % 10 == 0 then piece() end\n"
      "  assert(sysprof.stop())\n"
      "end");
  int before[4];
  long memory = 0;
  for (int i = 0; i <= CYCLES; i++) {
    /* Once all that is kept for the next one is there. */
    if (i == CYCLES / 10 || i == CYCLES) {
      lua_gc(L, LUA_GCCOLLECT, 0);
      int now[] = { entries("/proc/self/fd"), entries("/proc/self/task"),
                    lines("/proc/self/timers"), lines("/proc/self/maps") };
      if (i < CYCLES) {
        memcpy(before, now, sizeof now);
        memory = resident();
        continue;
      }
      static const char *const WHAT[] = { "descriptors", "threads", "timers", "mappings" };
      for (int what = 0; what < 4; what++) printf("%s %+d\n", WHAT[what], now[what] - before[what]);
      printf("memory %s\n", resident() - memory < 1024 ? "level" : "grows");
      fprintf(stderr, "memory %+ld KB\n", resident() - memory);
    }
    lua_getglobal(L, "cycle");
    lua_pushinteger(L, i);
    if (lua_pcall(L, 1, 0, 0)) {
      fprintf(stderr, "%s\n", lua_tostring(L, -1));
      _exit(98);
    }
  }
  lua_close(L);
}

#define LEFT (3 * 1024)

static char *bottom;

/* Uses the thread's stack up until LEFT is left of it, and then time. */
static __attribute__((noinline)) int deeper(void) {
  volatile char frame[256];
  frame[0] = 0;
  if ((char *)frame - bottom > LEFT + (long)sizeof frame) return deeper() + frame[0];
  spin(100);
  return frame[0];
}

static int use_stack_up(lua_State *L) {
  lua_pushinteger(L, deeper());
  return 1;
}

static void *deep(void *unused) {
  (void)unused;
  pthread_attr_t attributes;
  size_t size;
  void *address;
  CHECK(!pthread_getattr_np(pthread_self(), &attributes));
  CHECK(!pthread_attr_getstack(&attributes, &address, &size));
  bottom = address;
  lua_State *L = vm();
  lua_register(L, "use_stack_up", use_stack_up);
  stack_t none;
  CHECK(!sigaltstack(NULL, &none) && none.ss_flags & SS_DISABLE);
  started(L, START);
  run(L, "use_stack_up()");
  say(L, "samples", "sysprof.report().samples >= 50");
  say(L, "stop", "sysprof.stop()");
  CHECK(!sigaltstack(NULL, &none));
  printf("stack for signals %s\n", none.ss_flags & SS_DISABLE ? "none" : "left");
  lua_close(L);
  return NULL;
}

static void stack_nearly_full(void) { pthread_join(begin(deep, NULL), NULL); }

static void clock_stepped(void) {
  stepped_by = 3600; /* What is asked now is an hour later to the kernel. */
  lua_State *L = vm();
  started(L, START);
  run(L, "work(1500)");
  say(L, "samples", "sysprof.report().samples");
  raise(SIGKILL);
}

/* A sample of such a stack takes longer than the interval. */
static void interval_too_short(void) {
  lua_State *L = vm();
  started(L, "sysprof.start { mode = 'C', interval = 0.01, path = PROFILE }");
  run(L, "local function deep(n) if n == 0 then for i = 1, 50 do piece() end return 0 end"
         "  return 1 + deep(n - 1) end deep(450)");
  say(L, "stop", "sysprof.stop()");
  say(L, "samples", "sysprof.report().samples");
  lua_close(L);
}

static const struct {
  const char *name;
  void (*run)(void);
} CASES[] = {
#define CASE(name) { #name, name }
  CASE(signal_taken_before), CASE(signal_ignored), CASE(signal_taken_during),
  CASE(signal_blocked_before), CASE(signal_blocked_during), CASE(segv_taken_during),
  CASE(children), CASE(raw_fork), CASE(many_threads), CASE(stray_signals), CASE(thread_ends),
  CASE(stop_elsewhere), CASE(exit_elsewhere), CASE(fork_elsewhere),
  CASE(start_at_once), CASE(close_without_stop), CASE(stack_nearly_full),
  CASE(clock_stepped), CASE(interval_too_short), CASE(cycles),
};

int main(int argc, char **argv) {
  CHECK(argc == 3);
  profile = argv[2];
  alarm(60); /* A case that hangs ends. */
  for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
    if (!strcmp(CASES[i].name, argv[1])) {
      CASES[i].run();
      return 0;
    }
  }
  fprintf(stderr, "no case %s\n", argv[1]);
  return 2;
}
