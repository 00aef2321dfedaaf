#include "base/held_interrupt.h"

namespace zinc {

HeldInterrupt::HeldInterrupt() {
  sigset_t interrupt;
  sigemptyset(&interrupt);
  sigaddset(&interrupt, SIGINT);
  pthread_sigmask(SIG_BLOCK, &interrupt, &previous_);
}

HeldInterrupt::~HeldInterrupt() { pthread_sigmask(SIG_SETMASK, &previous_, nullptr); }

bool interrupt_waits() {
  sigset_t waiting;
  sigpending(&waiting);
  return sigismember(&waiting, SIGINT) == 1;
}

}  // namespace zinc
