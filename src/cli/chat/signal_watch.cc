#include "cli/chat/signal_watch.h"

#include <unistd.h>

#include <atomic>

namespace zinc {
namespace {

std::atomic<int> g_signal = 0;
termios g_terminal;  // as it was
std::atomic<bool> g_is_quiet = false;

void show_typing() {
  if (g_is_quiet.exchange(false)) ::tcsetattr(STDIN_FILENO, TCSANOW, &g_terminal);
}

void take(int signal) {
  if (signal != SIGQUIT) {
    g_signal = signal;
    return;
  }
  show_typing();  // Ctrl-\ ends the program at once, but the shell must show what is typed
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

}  // namespace

SignalWatch::SignalWatch() {
  g_signal = 0;
  for (size_t i = 0; i < kSignals.size(); ++i) {
    struct sigaction action = {};
    action.sa_handler = take;
    action.sa_flags = SA_RESTART;  // a write to a terminal that takes nothing at the moment is not broken off
    ::sigaction(kSignals[i], &action, &previous_[i]);
  }
  if (::tcgetattr(STDIN_FILENO, &g_terminal) != 0) return;
  termios quiet = g_terminal;
  quiet.c_lflag &= ~static_cast<tcflag_t>(ECHO);
  g_is_quiet = ::tcsetattr(STDIN_FILENO, TCSANOW, &quiet) == 0;
}

SignalWatch::~SignalWatch() {
  show_typing();
  for (size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &previous_[i], nullptr);
}

int SignalWatch::seen() { return g_signal; }

}  // namespace zinc
