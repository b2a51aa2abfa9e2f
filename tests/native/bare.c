/* Code that no unwind table describes: built without them, once with frame
   pointers and once without (BARE names the function). */

__attribute__((noinline, visibility("default"))) void BARE(void (*call)(void *), void *data)
{
  volatile char room[64];
  room[0] = 0;
  call(data);
  room[1] = 0;
}
