// While one of these lives, Ctrl-C (SIGINT) waits: the code under it finishes or tidies up, and the destructor lets the
// signal take its usual course. Holds it for the calling thread; meant for a program that has no other threads yet.
#pragma once

#include <csignal>

namespace zinc {

class HeldInterrupt {
 public:
  HeldInterrupt();
  ~HeldInterrupt();
  HeldInterrupt(const HeldInterrupt&) = delete;
  HeldInterrupt& operator=(const HeldInterrupt&) = delete;

 private:
  sigset_t previous_;
};

bool interrupt_waits();  // a held SIGINT has arrived

}  // namespace zinc
