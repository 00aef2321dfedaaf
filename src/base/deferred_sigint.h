// Blocks SIGINT (Ctrl-C) for its lifetime, so that a critical section can finish or clean up; the destructor restores
// the signal mask and a pending SIGINT is then delivered. Affects the calling thread only: use it before other threads
// are started.
#pragma once

#include <csignal>

namespace zinc {

class DeferredSigint {
 public:
  DeferredSigint();
  ~DeferredSigint();
  DeferredSigint(const DeferredSigint&) = delete;
  DeferredSigint& operator=(const DeferredSigint&) = delete;

 private:
  sigset_t previous_;
};

bool sigint_pending();  // a blocked SIGINT has arrived

}  // namespace zinc
