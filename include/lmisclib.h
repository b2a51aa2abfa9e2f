/*
** The C API of sysprof: profiles a Lua VM from the program that hosts it.
**
** The functions are in the module that `require "sysprof"` loads,
** sysprof_core.so. Names, structures and results are those of the profiler in
** Tarantool's LuaJIT, so that a host of that one needs no change. docs/c-api.md
** explains them at length.
*/
#ifndef LMISCLIB_H
#define LMISCLIB_H

#include <stddef.h>
#include <stdint.h>

#include "lua.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifndef LUAMISC_API
#define LUAMISC_API extern
#endif

/* Results. On all but PROFILE_SUCCESS, errno says more. */
#define PROFILE_SUCCESS 0
#define PROFILE_ERRUSE 1 /* wrong arguments, or the wrong moment to configure */
#define PROFILE_ERRRUN 2 /* running already, not running, or can't run here */
#define PROFILE_ERRMEM 3 /* out of memory */
#define PROFILE_ERRIO 4  /* the writer or on_stop failed */

/* What is recorded: values of luam_Sysprof_Options.mode. */
#define LUAM_SYSPROF_DEFAULT 0   /* counters only, no stream */
#define LUAM_SYSPROF_LEAF 1      /* and the innermost frame of each sample */
#define LUAM_SYSPROF_CALLGRAPH 2 /* and its whole stack */

/*
** Writes `len` bytes at `*data` and returns how many it has written; it is
** called again with what is left. 0 is an error, that errno names; after EINTR
** it is called again, any other halts the session. Setting `*data` to NULL ends
** the profile, too. Called in a signal handler: see signal-safety(7) for what
** it may do.
*/
typedef size_t (*luam_Sysprof_writer)(const void **data, size_t len, void *ctx);

/*
** Called once for each luaM_sysprof_start, with its `ctx` and `buf`: when the
** session has ended, or at once if it has not begun. The place to free both.
** A result other than 0 is an error.
*/
typedef int (*luam_Sysprof_on_stop)(void *ctx, uint8_t *buf);

/*
** Calls `frame_writer` with the number (from 0) and address of each frame of
** the native stack, innermost first, until there are no more or it returns
** NULL. Called in a signal handler.
*/
typedef void (*luam_Sysprof_backtracer)(void *(*frame_writer)(int frame_no, void *addr));

struct luam_Sysprof_Config {
  luam_Sysprof_writer writer;
  luam_Sysprof_on_stop on_stop;
  luam_Sysprof_backtracer backtracer; /* NULL: the profiler's own */
};

struct luam_Sysprof_Options {
  uint8_t mode;
  uint64_t interval; /* milliseconds; (uint64_t)-1: SIGPROF comes from elsewhere */
  uint8_t *buf;      /* where the stream is collected before it is written */
  size_t len;        /* bytes of it */
  void *ctx;         /* given to writer and on_stop */
};

struct luam_Sysprof_Counters {
  uint64_t vmst_interp;
  uint64_t vmst_lfunc;
  uint64_t vmst_ffunc;
  uint64_t vmst_cfunc;
  uint64_t vmst_gc;
  uint64_t vmst_exit;
  uint64_t vmst_record;
  uint64_t vmst_opt;
  uint64_t vmst_asm;
  uint64_t vmst_trace;
  uint64_t samples;  /* all of them, those below included */
  uint64_t overruns; /* ticks of the clock that had no signal of their own */
};

/* Sets all three. Not while a session runs. */
LUAMISC_API int luaM_sysprof_configure(const struct luam_Sysprof_Config *config);

/* Sets one of them. Not while a session runs. */
LUAMISC_API int luaM_sysprof_set_writer(luam_Sysprof_writer writer);
LUAMISC_API int luaM_sysprof_set_on_stop(luam_Sysprof_on_stop on_stop);
LUAMISC_API int luaM_sysprof_set_backtracer(luam_Sysprof_backtracer backtracer);

/* Starts the session of the calling thread, which runs `L`. */
LUAMISC_API int luaM_sysprof_start(lua_State *L, const struct luam_Sysprof_Options *opt);

/* Ends it. lua_close does so as well. */
LUAMISC_API int luaM_sysprof_stop(lua_State *L);

/* Says what was counted, so far or in the last session. */
LUAMISC_API int luaM_sysprof_report(struct luam_Sysprof_Counters *counters);

#ifdef __cplusplus
}
#endif

#endif /* LMISCLIB_H */
