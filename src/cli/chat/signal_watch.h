// While one of these lives, Ctrl-C and a wish to end the program (SIGTERM, SIGHUP) are noted instead of ending it, and
// what is typed ahead does not show up. Output that was under way goes on. One at a time, on the chat's thread.
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

  static int seen();  // the last signal since the last watch began; 0: none

 private:
  static constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
  std::array<struct sigaction, kSignals.size()> previous_;
};

}  // namespace zinc
