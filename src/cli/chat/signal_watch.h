// For its lifetime, SIGINT, SIGTERM and SIGHUP are recorded instead of ending the program, and typed characters are not
// echoed. Interrupted writes are restarted. At most one instance, on the chat thread.
#pragma once

#include <termios.h>

#include <array>
#include <csignal>

namespace zinc {

class SignalWatch {
 public:
  SignalWatch();
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  static int last_signal();  // since the latest SignalWatch was created; 0: none

 private:
  static constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
  std::array<struct sigaction, kSignals.size()> previous_;
};

}  // namespace zinc
