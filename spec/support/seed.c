/* Preloaded: a LuaJIT that asks for random numbers gets the same ones each time,
 * for its penalties of what was aborted and the places of its machine code. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>

ssize_t getrandom(void *to, size_t len, unsigned flags) {
  (void)flags;
  memset(to, 1, len);
  return (ssize_t)len;
}

long syscall(long number, long a, long b, long c, long d, long e, long f) {
  static long (*next)(long, ...);
  if (number == SYS_getrandom) return getrandom((void *)a, (size_t)b, 0);
  if (!next) next = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
  return next(number, a, b, c, d, e, f);
}
