// C++ that throws and catches while C and Lua wait around it.

#include "shadow.h"
#include <stdexcept>

namespace native {

class Worker {
public:
  FUNCTION void work(int depth)
  {
    if (depth == 0) {
      INTERRUPT();
      throw std::runtime_error("thrown in C++");
    }
    work(depth - 1);
    calls++;
  }

  int calls = 0;
};

} // namespace native

FUNCTION void native_cpp_try(void (*call)(void *), void *data)
{
  native::Worker worker;
  try {
    call(data);
    worker.work(3);
  } catch (const std::exception &) {
    call(data);
  }
}
