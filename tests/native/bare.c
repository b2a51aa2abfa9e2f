/* Code that no unwind table describes: built without them, once with frame
   pointers and twice without (BARE names the function); one of these has a loop on
   the way to its end (WINDING). */

__attribute__((noinline, visibility("default"))) void BARE(void (*call)(void *), void *data)
{
  volatile char room[64];
  room[0] = 0;
  /* A call that returns to where a function might begin would prove nothing. */
  __asm__ volatile(".p2align 4\n nop");
  call(data);
  room[1] = 0;
#ifdef WINDING
  for (int i = 0; i < 64; i++)
    room[i] = 0;
#endif
}
