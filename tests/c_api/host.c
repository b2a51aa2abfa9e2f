/*
** A host in C that uses all of lmisclib.h: `host CASE [FILE]` runs one case and
** exits with 0 if all was as it should be. Also compiles as C++.
*/
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif
#include "lauxlib.h"
#include "lualib.h"
#ifdef __cplusplus
}
#endif
#include "lmisclib.h"

#define CHECK(what) \
  do { \
    if (!(what)) { \
      fprintf(stderr, "%s:%d: %s: not so (errno %d)\n", __FILE__, __LINE__, #what, errno); \
      exit(1); \
    } \
  } while (0)

#define NEVER ((uint64_t)-1)

/* The recorder fills the counters in by the numbers of the states. */
#ifndef __cplusplus
#define static_assert _Static_assert
#endif
#define COUNTER(name, number) \
  static_assert(offsetof(struct luam_Sysprof_Counters, name) == (number) * sizeof(uint64_t), \
                #name " is counter " #number)
COUNTER(vmst_interp, 0);
COUNTER(vmst_lfunc, 1);
COUNTER(vmst_ffunc, 2);
COUNTER(vmst_cfunc, 3);
COUNTER(vmst_gc, 4);
COUNTER(vmst_exit, 5);
COUNTER(vmst_record, 6);
COUNTER(vmst_opt, 7);
COUNTER(vmst_asm, 8);
COUNTER(vmst_trace, 9);
COUNTER(samples, 10);
COUNTER(overruns, 11);
static_assert(sizeof(struct luam_Sysprof_Counters) == 12 * sizeof(uint64_t), "and no other");
static_assert(offsetof(struct luam_Sysprof_Options, interval) == 8 &&
                offsetof(struct luam_Sysprof_Options, buf) == 16 &&
                offsetof(struct luam_Sysprof_Options, len) == 24 &&
                offsetof(struct luam_Sysprof_Options, ctx) == 32,
              "options are as the recorder reads them");
static_assert(sizeof(struct luam_Sysprof_Config) == 3 * sizeof(void *), "so is the configuration");

/* What the writer is told to do, and what has happened. */
struct host {
  FILE *file;
  size_t most;        /* bytes that it takes at once, 0 for all */
  int interrupt;      /* every other call is interrupted */
  size_t fail_after;  /* bytes after which it fails, 0 for never */
  int fail_with;      /* with this errno */
  int end;            /* ends the profile at the next call */
  size_t written;
  size_t calls;
  size_t largest;     /* bytes that it was called with at most */
  int stops;
  uint8_t *stopped_buf;
  int stop_result;
};

static struct host host;
static uint8_t buffer[4096];

static size_t writer(const void **data, size_t len, void *ctx)
{
  struct host *h = (struct host *)ctx;
  h->calls++;
  if (len > h->largest)
    h->largest = len;
  if (h->interrupt && h->calls % 2 == 1) {
    errno = EINTR;
    return 0;
  }
  if (h->end) {
    *data = NULL;
    return len;
  }
  if (h->fail_after && h->written >= h->fail_after) {
    errno = h->fail_with;
    return 0;
  }
  if (h->most && len > h->most)
    len = h->most;
  if (h->file && fwrite(*data, 1, len, h->file) != len)
    return 0;
  h->written += len;
  errno = EDOM; /* must not be seen by the program */
  return len;
}

static int on_stop(void *ctx, uint8_t *buf)
{
  struct host *h = (struct host *)ctx;
  h->stops++;
  h->stopped_buf = buf;
  if (h->file) {
    fclose(h->file);
    h->file = NULL;
  }
  return h->stop_result;
}

static int traced;
static int wanted;

static void backtracer(void *(*frame_writer)(int frame_no, void *addr))
{
  static char code[8];
  int n;
  traced++;
  for (n = 0; n < 8; n++) {
    wanted = n + 1;
    if (frame_writer(n, &code[n]) == NULL)
      break;
  }
}

/* A signal at a known place: a C function on top of a Lua stack. */
static int sample_here(lua_State *L)
{
  (void)L;
  errno = ERANGE;
  raise(SIGPROF);
  CHECK(errno == ERANGE);
  return 0;
}

static lua_State *new_vm(void)
{
  lua_State *L = luaL_newstate();
  CHECK(L != NULL);
  luaL_openlibs(L);
  lua_register(L, "sample_here", sample_here);
  CHECK(luaL_dostring(L, "jit.off()") == 0);
  return L;
}

static const char *const PROGRAM =
  "local function inner() sample_here() return 1 end\n"
  "local function outer(n)\n"
  "  local sum = 0\n"
  "  for i = 1, n do sum = sum + inner() end\n"
  "  return sum\n"
  "end\n"
  "return outer(...)\n";

static void run(lua_State *L, int samples)
{
  CHECK(luaL_loadbuffer(L, PROGRAM, strlen(PROGRAM), "=program") == 0);
  lua_pushinteger(L, samples);
  CHECK(lua_pcall(L, 1, 1, 0) == 0);
  CHECK(lua_tointeger(L, -1) == samples);
  lua_pop(L, 1);
}

static struct luam_Sysprof_Options options(int mode)
{
  struct luam_Sysprof_Options opt;
  memset(&opt, 0, sizeof(opt));
  opt.mode = (uint8_t)mode;
  opt.interval = NEVER;
  opt.buf = buffer;
  opt.len = sizeof(buffer);
  opt.ctx = &host;
  return opt;
}

static void configure(void)
{
  struct luam_Sysprof_Config config;
  config.writer = writer;
  config.on_stop = on_stop;
  config.backtracer = NULL;
  CHECK(luaM_sysprof_configure(&config) == PROFILE_SUCCESS);
}

static struct luam_Sysprof_Counters report(void)
{
  struct luam_Sysprof_Counters c;
  memset(&c, 0xff, sizeof(c));
  CHECK(luaM_sysprof_report(&c) == PROFILE_SUCCESS);
  CHECK(c.samples == c.vmst_interp + c.vmst_lfunc + c.vmst_ffunc + c.vmst_cfunc + c.vmst_gc +
                       c.vmst_exit + c.vmst_record + c.vmst_opt + c.vmst_asm + c.vmst_trace);
  CHECK(c.overruns <= c.samples);
  return c;
}

static int start(lua_State *L, const struct luam_Sysprof_Options *opt)
{
  errno = 0;
  return luaM_sysprof_start(L, opt);
}

static void misuse(lua_State *L)
{
  lua_State *other;
  struct luam_Sysprof_Config config;
  struct luam_Sysprof_Options opt = options(LUAM_SYSPROF_CALLGRAPH);

  CHECK(luaM_sysprof_stop(L) == PROFILE_ERRRUN);
  CHECK(luaM_sysprof_report(NULL) == PROFILE_ERRUSE);
  CHECK(luaM_sysprof_configure(NULL) == PROFILE_ERRUSE);
  CHECK(luaM_sysprof_start(L, NULL) == PROFILE_ERRUSE);

  /* Without a writer, without on_stop. */
  CHECK(start(L, &opt) == PROFILE_ERRUSE && errno == EINVAL);
  CHECK(luaM_sysprof_set_on_stop(on_stop) == PROFILE_SUCCESS);
  CHECK(start(L, &opt) == PROFILE_ERRUSE);
  CHECK(host.stops == 1 && host.stopped_buf == buffer);
  CHECK(luaM_sysprof_set_on_stop(NULL) == PROFILE_SUCCESS);
  CHECK(luaM_sysprof_set_writer(writer) == PROFILE_SUCCESS);
  CHECK(start(L, &opt) == PROFILE_ERRUSE);
  CHECK(luaM_sysprof_set_on_stop(on_stop) == PROFILE_SUCCESS);
  host.stops = 0;

  /* Each wrong option, and on_stop once for each failed start. */
  opt.mode = LUAM_SYSPROF_CALLGRAPH + 1;
  CHECK(start(L, &opt) == PROFILE_ERRUSE && host.stops == 1);
  opt = options(LUAM_SYSPROF_LEAF);
  opt.buf = NULL;
  CHECK(start(L, &opt) == PROFILE_ERRUSE && host.stops == 2 && host.stopped_buf == NULL);
  opt = options(LUAM_SYSPROF_LEAF);
  opt.len = 0;
  CHECK(start(L, &opt) == PROFILE_ERRUSE && host.stops == 3);
  opt = options(LUAM_SYSPROF_DEFAULT);
  opt.interval = 0;
  CHECK(start(L, &opt) == PROFILE_ERRUSE && host.stops == 4);
  opt = options(LUAM_SYSPROF_DEFAULT);
  CHECK(start(NULL, &opt) == PROFILE_ERRUSE && host.stops == 5);

  /* While it runs. */
  host.stops = 0;
  opt = options(LUAM_SYSPROF_CALLGRAPH);
  CHECK(start(L, &opt) == PROFILE_SUCCESS);
  CHECK(start(L, &opt) == PROFILE_ERRRUN && host.stops == 1);
  memset(&config, 0, sizeof(config));
  CHECK(luaM_sysprof_configure(&config) == PROFILE_ERRUSE);
  CHECK(luaM_sysprof_set_writer(NULL) == PROFILE_ERRUSE);
  CHECK(luaM_sysprof_set_on_stop(NULL) == PROFILE_ERRUSE);
  CHECK(luaM_sysprof_set_backtracer(backtracer) == PROFILE_ERRUSE);
  other = new_vm();
  CHECK(luaM_sysprof_stop(other) == PROFILE_ERRUSE);
  lua_close(other);
  CHECK(host.stops == 1);
  CHECK(luaM_sysprof_stop(L) == PROFILE_SUCCESS);
  CHECK(host.stops == 2);
  CHECK(luaM_sysprof_stop(L) == PROFILE_ERRRUN);
  CHECK(luaM_sysprof_set_backtracer(backtracer) == PROFILE_SUCCESS);
}

/* Counters only: no writer is needed, nor called. */
static void counters(lua_State *L)
{
  struct luam_Sysprof_Options opt;
  struct luam_Sysprof_Counters c;
  memset(&opt, 0, sizeof(opt));
  opt.interval = NEVER;
  CHECK(start(L, &opt) == PROFILE_SUCCESS);
  run(L, 7);
  c = report();
  CHECK(c.samples == 7 && c.vmst_cfunc == 7 && c.overruns == 0);
  run(L, 2);
  CHECK(luaM_sysprof_stop(L) == PROFILE_SUCCESS);
  c = report();
  CHECK(c.samples == 9 && c.vmst_cfunc == 9);
}

/* A clock that ticks. */
static void ticks(lua_State *L)
{
  struct luam_Sysprof_Options opt;
  memset(&opt, 0, sizeof(opt));
  opt.interval = 1;
  CHECK(start(L, &opt) == PROFILE_SUCCESS);
  while (report().samples < 20)
    CHECK(luaL_dostring(L, "local s = 0 for i = 1, 1e5 do s = s + #tostring(i) end") == 0);
  CHECK(luaM_sysprof_stop(L) == PROFILE_SUCCESS);
  CHECK(report().samples >= 20);
}

static void stream(lua_State *L, int mode)
{
  struct luam_Sysprof_Options opt = options(mode);
  configure();
  CHECK(start(L, &opt) == PROFILE_SUCCESS);
  CHECK(host.stops == 0);
  run(L, 100);
  CHECK(luaM_sysprof_stop(L) == PROFILE_SUCCESS);
  CHECK(report().samples == 100 && report().vmst_cfunc == 100);
  CHECK(host.stops == 1 && host.stopped_buf == buffer);
  CHECK(host.largest == sizeof(buffer));
}

static void slow_writer(lua_State *L)
{
  host.most = 11;
  host.interrupt = 1;
  stream(L, LUAM_SYSPROF_CALLGRAPH);
}

/* The writer fails in the middle of the samples, after the first one. */
static void halt(lua_State *L)
{
  struct luam_Sysprof_Options opt = options(LUAM_SYSPROF_CALLGRAPH);
  size_t calls;
  configure();
  CHECK(start(L, &opt) == PROFILE_SUCCESS);
  host.fail_after = host.written + 1;
  host.fail_with = ENOSPC;
  run(L, 2000);
  calls = host.calls;
  run(L, 500);
  CHECK(host.calls == calls);
  CHECK(report().samples == 2500);
  CHECK(start(L, &opt) == PROFILE_ERRRUN && host.stops == 1);
  errno = 0;
  CHECK(luaM_sysprof_stop(L) == PROFILE_ERRIO && errno == ENOSPC);
  CHECK(host.stops == 2 && host.calls == calls);
  CHECK(report().samples == 2500);
  /* It is idle again. */
  CHECK(luaM_sysprof_stop(L) == PROFILE_ERRRUN);
  host.fail_after = 0;
  CHECK(start(L, &opt) == PROFILE_SUCCESS);
  run(L, 3);
  CHECK(luaM_sysprof_stop(L) == PROFILE_SUCCESS && host.stops == 3);
  CHECK(report().samples == 3);
}

/* The writer fails before the first sample: nothing has begun. */
static void halt_at_start(lua_State *L)
{
  struct luam_Sysprof_Options opt = options(LUAM_SYSPROF_LEAF);
  configure();
  host.fail_after = 1;
  host.fail_with = EPIPE;
  CHECK(start(L, &opt) == PROFILE_ERRIO && errno == EPIPE);
  CHECK(host.stops == 1);
  CHECK(luaM_sysprof_stop(L) == PROFILE_ERRRUN);
}

/* The writer has enough. */
static void end(lua_State *L)
{
  struct luam_Sysprof_Options opt = options(LUAM_SYSPROF_CALLGRAPH);
  size_t calls;
  configure();
  CHECK(start(L, &opt) == PROFILE_SUCCESS);
  calls = host.calls;
  host.end = 1;
  run(L, 2000);
  CHECK(host.calls == calls + 1);
  CHECK(luaM_sysprof_stop(L) == PROFILE_ERRIO && errno == ECANCELED);
  CHECK(host.stops == 1 && host.calls == calls + 1);
}

/* on_stop says that it failed. */
static void bad_end(lua_State *L)
{
  struct luam_Sysprof_Options opt = options(LUAM_SYSPROF_LEAF);
  configure();
  CHECK(start(L, &opt) == PROFILE_SUCCESS);
  host.stop_result = 1;
  CHECK(luaM_sysprof_stop(L) == PROFILE_ERRIO && host.stops == 1);
  CHECK(luaM_sysprof_stop(L) == PROFILE_ERRRUN);
}

static void own_backtracer(lua_State *L)
{
  struct luam_Sysprof_Options opt = options(LUAM_SYSPROF_CALLGRAPH);
  configure();
  CHECK(luaM_sysprof_set_backtracer(backtracer) == PROFILE_SUCCESS);
  CHECK(start(L, &opt) == PROFILE_SUCCESS);
  run(L, 5);
  CHECK(luaM_sysprof_stop(L) == PROFILE_SUCCESS);
  CHECK(traced == 5 && wanted == 8);
}

static void leaf_backtracer(lua_State *L)
{
  struct luam_Sysprof_Options opt = options(LUAM_SYSPROF_LEAF);
  configure();
  CHECK(luaM_sysprof_set_backtracer(backtracer) == PROFILE_SUCCESS);
  CHECK(start(L, &opt) == PROFILE_SUCCESS);
  run(L, 5);
  CHECK(luaM_sysprof_stop(L) == PROFILE_SUCCESS);
  CHECK(traced == 5 && wanted == 1);
}

/* Nobody stops it: lua_close does. */
static void closes(void)
{
  struct luam_Sysprof_Options opt = options(LUAM_SYSPROF_CALLGRAPH);
  lua_State *L = new_vm();
  configure();
  CHECK(start(L, &opt) == PROFILE_SUCCESS);
  run(L, 10);
  lua_close(L);
  CHECK(host.stops == 1);
  L = new_vm();
  CHECK(luaM_sysprof_stop(L) == PROFILE_ERRRUN);
  CHECK(report().samples == 10);
  lua_close(L);
}

/* Built with the feature "disabled". */
static void disabled(lua_State *L)
{
  struct luam_Sysprof_Options opt = options(LUAM_SYSPROF_DEFAULT);
  struct luam_Sysprof_Config config;
  struct luam_Sysprof_Counters c;
  memset(&config, 0, sizeof(config));
  CHECK(luaM_sysprof_configure(&config) == PROFILE_ERRUSE && errno == ENOTSUP);
  CHECK(luaM_sysprof_set_writer(writer) == PROFILE_ERRUSE);
  CHECK(luaM_sysprof_set_on_stop(on_stop) == PROFILE_ERRUSE);
  CHECK(luaM_sysprof_set_backtracer(NULL) == PROFILE_ERRUSE);
  CHECK(start(L, &opt) == PROFILE_ERRUSE && errno == ENOTSUP);
  CHECK(luaM_sysprof_stop(L) == PROFILE_ERRUSE && errno == ENOTSUP);
  CHECK(luaM_sysprof_report(&c) == PROFILE_ERRUSE && errno == ENOTSUP);
  CHECK(host.stops == 0 && host.calls == 0);
}

int main(int argc, char **argv)
{
  const char *name = argc > 1 ? argv[1] : "";
  lua_State *L;
  if (argc > 2) {
    host.file = fopen(argv[2], "wb");
    CHECK(host.file != NULL);
  }
  if (strcmp(name, "closes") == 0) {
    closes();
    return 0;
  }
  L = new_vm();
  if (strcmp(name, "misuse") == 0) misuse(L);
  else if (strcmp(name, "counters") == 0) counters(L);
  else if (strcmp(name, "ticks") == 0) ticks(L);
  else if (strcmp(name, "callgraph") == 0) stream(L, LUAM_SYSPROF_CALLGRAPH);
  else if (strcmp(name, "leaf") == 0) stream(L, LUAM_SYSPROF_LEAF);
  else if (strcmp(name, "slow_writer") == 0) slow_writer(L);
  else if (strcmp(name, "halt") == 0) halt(L);
  else if (strcmp(name, "halt_at_start") == 0) halt_at_start(L);
  else if (strcmp(name, "end") == 0) end(L);
  else if (strcmp(name, "bad_end") == 0) bad_end(L);
  else if (strcmp(name, "own_backtracer") == 0) own_backtracer(L);
  else if (strcmp(name, "leaf_backtracer") == 0) leaf_backtracer(L);
  else if (strcmp(name, "disabled") == 0) disabled(L);
  else {
    fprintf(stderr, "no case %s\n", name);
    return 2;
  }
  lua_close(L);
  return 0;
}
