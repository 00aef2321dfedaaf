#include "base/deferred_sigint.h"

namespace zinc {

DeferredSigint::DeferredSigint() {
  sigset_t interrupt;
  sigemptyset(&interrupt);
  sigaddset(&interrupt, SIGINT);
  pthread_sigmask(SIG_BLOCK, &interrupt, &previous_);
}

DeferredSigint::~DeferredSigint() { pthread_sigmask(SIG_SETMASK, &previous_, nullptr); }

bool sigint_pending() {
  sigset_t pending;
  sigpending(&pending);
  return sigismember(&pending, SIGINT) == 1;
}

}  // namespace zinc
