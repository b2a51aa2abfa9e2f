/* The call chain of the module, written by itself: what the stack that a
   profiler finds is held against. The compiler calls the two hooks of
   -finstrument-functions at the beginning and at the end of each function, also
   when an exception passes through it. */

#ifndef SHADOW_H
#define SHADOW_H

#define SHADOW_DEPTH 256

struct shadow_call {
  void *function; /* where its code begins */
  void *caller;   /* the address that it returns to */
};

struct shadow {
  unsigned long count;
  struct shadow_call calls[SHADOW_DEPTH]; /* outermost first */
};

#ifdef __cplusplus
extern "C" {
#endif

extern struct shadow native_shadow;

extern int native_signal; /* the profiler's, once armed */
extern int native_process, native_thread;

/* Sends this thread a signal; a macro, so that the instruction that it interrupts
   is the function's own. */
#define SEND(number)                                                                    \
  do {                                                                                  \
    long result = 234; /* tgkill */                                                     \
    __asm__ volatile("syscall"                                                          \
                     : "+a"(result)                                                     \
                     : "D"((long)native_process), "S"((long)native_thread),             \
                       "d"((long)(number))                                              \
                     : "rcx", "r11", "memory");                                         \
  } while (0)

/* The profiler's signal, once armed. */
#define INTERRUPT() do { if (native_signal) SEND(native_signal); } while (0)

/* Functions of their own, whatever the compiler would rather do. */
#define FUNCTION __attribute__((noinline, noclone, visibility("default")))

/* C++ that throws and catches, Rust that calls back. */
void native_cpp_try(void (*call)(void *), void *data);
void native_rust_twice(void (*call)(void *), void *data);

#ifdef __cplusplus
}
#endif
#endif
