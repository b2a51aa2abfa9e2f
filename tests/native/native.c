/* A C module that calls Lua, and is called, in every way that a host may. Built
   with -finstrument-functions: see shadow.h. */

#define _GNU_SOURCE
#include "shadow.h"
#include <lauxlib.h>
#include <lua.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#define HOOK __attribute__((no_instrument_function, noinline))

struct shadow native_shadow;
int native_signal, native_process, native_thread;

HOOK void __cyg_profile_func_enter(void *function, void *caller)
{
  struct shadow_call *call = &native_shadow.calls[native_shadow.count];
  call->function = function;
  call->caller = caller;
  __atomic_signal_fence(__ATOMIC_SEQ_CST);
  native_shadow.count++;
}

HOOK void __cyg_profile_func_exit(void *function, void *caller)
{
  (void)function;
  (void)caller;
  native_shadow.count--;
}

/* Below: code whose stack is looked at. Calls in the last place get something to
   do after them, or they would be jumps. */

FUNCTION void native_leaf(void)
{
  INTERRUPT();
}

/* leaf(): the signal comes here. */
FUNCTION int l_leaf(lua_State *L)
{
  INTERRUPT();
  return lua_gettop(L) * 0;
}

/* deep(n): the same, n C functions further in. */
FUNCTION int native_deep(int n)
{
  if (n > 0)
    return native_deep(n - 1) + 1;
  native_leaf();
  return 0;
}

FUNCTION int l_deep(lua_State *L)
{
  return native_deep((int)lua_tointeger(L, 1)) * 0;
}

/* call(f, ...), pcall, cpcall: f is called through the API function of that
   name. */
FUNCTION int l_call(lua_State *L)
{
  lua_call(L, lua_gettop(L) - 1, 0);
  return 0;
}

FUNCTION int l_pcall(lua_State *L)
{
  lua_pushboolean(L, lua_pcall(L, lua_gettop(L) - 1, 0, 0) == 0);
  return 1;
}

FUNCTION int l_protected(lua_State *L)
{
  int *reference = lua_touserdata(L, 1);
  lua_rawgeti(L, LUA_REGISTRYINDEX, *reference);
  lua_call(L, 0, 0);
  return 0;
}

FUNCTION int l_cpcall(lua_State *L)
{
  int reference = luaL_ref(L, LUA_REGISTRYINDEX);
  int status = lua_cpcall(L, l_protected, &reference);
  luaL_unref(L, LUA_REGISTRYINDEX, reference);
  lua_pushboolean(L, status == 0);
  return 1;
}

/* resume(f): f runs in a coroutine of its own, to its end or first yield. */
FUNCTION int l_resume(lua_State *L)
{
  lua_State *thread = lua_newthread(L);
  lua_pushvalue(L, 1);
  lua_xmove(L, thread, 1);
  lua_pushboolean(L, lua_resume(thread, 0) <= LUA_YIELD);
  return 1;
}

/* collect(): finalizers run inside. */
FUNCTION int l_collect(lua_State *L)
{
  lua_gc(L, LUA_GCCOLLECT, 0);
  return 0;
}

/* A function on the stack, for callbacks that take a pointer. */
FUNCTION void native_back(void *data)
{
  lua_State *L = data;
  lua_pushvalue(L, 1);
  lua_call(L, 0, 0);
}

/* sort(f): f is called by a comparison of the C library's own. */
static lua_State *sorting;

FUNCTION int native_compare(const void *a, const void *b)
{
  native_back(sorting);
  return *(const char *)a - *(const char *)b;
}

FUNCTION int l_sort(lua_State *L)
{
  char two[] = "ba";
  sorting = L;
  qsort(two, 2, 1, native_compare);
  return 0;
}

/* cpp(f): f is called inside a try block of C++, and again in its catch block. */
FUNCTION int l_cpp(lua_State *L)
{
  native_cpp_try(native_back, L);
  return 0;
}

/* rust(f): f is called twice by a closure in Rust. */
FUNCTION int l_rust(lua_State *L)
{
  native_rust_twice(native_back, L);
  return 0;
}

/* framed(f): f is called by code without unwind tables that has a frame pointer.
   bare(f): by code that has neither, under code that has one: rbp is there, and
   is not its own. winding(f): the same, and it does not go straight to its end. */
void native_framed(void (*call)(void *), void *data);
void native_bare(void (*call)(void *), void *data);
void native_winding(void (*call)(void *), void *data);

FUNCTION int l_framed(lua_State *L)
{
  native_framed(native_back, L);
  return 0;
}

FUNCTION void native_through_bare(void *data)
{
  native_bare(native_back, data);
}

FUNCTION int l_bare(lua_State *L)
{
  native_framed(native_through_bare, L);
  return 0;
}

FUNCTION void native_through_winding(void *data)
{
  native_winding(native_back, data);
}

FUNCTION int l_winding(lua_State *L)
{
  native_framed(native_through_winding, L);
  return 0;
}

/* switch(): by code without unwind tables that changes stacks, as libraries of
   fibers have it, from this stack to this stack. */
void native_switch(void **from, void **to);
__asm__(".text\n"
        ".hidden native_switch\n"
        ".globl native_switch\n"
        ".type native_switch, @function\n"
        "native_switch:\n"
        "  push %rbp\n"
        "  push %rbx\n"
        "  push %r12\n"
        "  mov %rsp, (%rdi)\n"
        "  mov (%rsi), %rsp\n"
        "  pop %r12\n"
        "  pop %rbx\n"
        "  pop %rbp\n"
        "  pop %rcx\n"
        "  jmp *%rcx\n"
        ".size native_switch, . - native_switch\n");

FUNCTION int l_switch(lua_State *L)
{
  void *stack;
  native_switch(&stack, &stack);
  return lua_gettop(L) * 0;
}

/* fiber(f): f is called on a stack that is not the thread's. */
static ucontext_t outside, inside;
static lua_State *fiber_state;

FUNCTION void native_fiber(void)
{
  native_back(fiber_state);
}

FUNCTION int l_fiber(lua_State *L)
{
  const size_t size = 256 * 1024, guard = 4096;
  char *stack = mmap(NULL, size + 2 * guard, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  mprotect(stack + guard, size, PROT_READ | PROT_WRITE);
  getcontext(&inside);
  inside.uc_stack.ss_sp = stack + guard;
  inside.uc_stack.ss_size = size;
  inside.uc_link = &outside;
  makecontext(&inside, native_fiber, 0);
  fiber_state = L;
  swapcontext(&outside, &inside);
  munmap(stack, size + 2 * guard);
  return 0;
}

/* on_signal_stack(): a signal handler on a stack of its own, at the thread's
   leaf. */
FUNCTION void native_handler(int number)
{
  (void)number;
  native_deep(1);
}

FUNCTION int l_on_signal_stack(lua_State *L)
{
  const size_t size = 64 * 1024;
  stack_t stack = { .ss_sp = malloc(size), .ss_size = size }, before;
  struct sigaction action = { .sa_handler = native_handler, .sa_flags = SA_ONSTACK }, old;
  sigaltstack(&stack, &before);
  sigaction(SIGUSR1, &action, &old);
  SEND(SIGUSR1);
  sigaction(SIGUSR1, &old, NULL);
  sigaltstack(&before, NULL);
  free(stack.ss_sp);
  return lua_gettop(L) * 0;
}

/* fails(): an error of Lua's that unwinds through C. */
FUNCTION int l_fails(lua_State *L)
{
  INTERRUPT();
  return luaL_error(L, "thrown");
}

/* For the FFI. */
FUNCTION int native_plain(int from, int number)
{
  if (number == from)
    INTERRUPT();
  return number + 1;
}

FUNCTION int native_each(int (*callback)(int), int count)
{
  int sum = 0;
  for (int i = 0; i < count; i++)
    sum += callback(i);
  return sum;
}

/* arm(signal): from now on the leaves send it. */
HOOK static int arm(lua_State *L)
{
  native_process = getpid();
  native_thread = (int)syscall(SYS_gettid);
  native_signal = (int)luaL_checkinteger(L, 1);
  return 0;
}

HOOK __attribute__((visibility("default"))) int luaopen_native(lua_State *L)
{
  static const luaL_Reg functions[] = {
    { "arm", arm },         { "leaf", l_leaf },       { "deep", l_deep },
    { "call", l_call },     { "pcall", l_pcall },     { "cpcall", l_cpcall },
    { "resume", l_resume }, { "collect", l_collect }, { "sort", l_sort },
    { "cpp", l_cpp },       { "rust", l_rust },       { "fiber", l_fiber },
    { "fails", l_fails },   { "framed", l_framed },   { "bare", l_bare },
    { "winding", l_winding }, { "switch", l_switch },
    { "on_signal_stack", l_on_signal_stack },
    { NULL, NULL },
  };
  lua_newtable(L);
  for (const luaL_Reg *function = functions; function->name; function++) {
    lua_pushcfunction(L, function->func);
    lua_setfield(L, -2, function->name);
  }
  lua_pushlightuserdata(L, &native_shadow);
  lua_setfield(L, LUA_REGISTRYINDEX, "native.shadow");
  return 1;
}
