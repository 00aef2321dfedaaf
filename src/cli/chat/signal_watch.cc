#include "cli/chat/signal_watch.h"

#include <unistd.h>

#include <atomic>

namespace zinc {
namespace {

std::atomic<int> g_signal = 0;
termios g_terminal;  // saved settings
std::atomic<bool> g_echo_is_off = false;

void restore_echo() {
  if (g_echo_is_off.exchange(false)) ::tcsetattr(STDIN_FILENO, TCSANOW, &g_terminal);
}

void handle_signal(int signal) {
  if (signal != SIGQUIT) {
    g_signal = signal;
    return;
  }
  restore_echo();  // Ctrl-\ ends the program at once, but the shell needs echo
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

}  // namespace

SignalWatch::SignalWatch() {
  g_signal = 0;
  for (size_t i = 0; i < kSignals.size(); ++i) {
    struct sigaction action = {};
    action.sa_handler = handle_signal;
    action.sa_flags = SA_RESTART;  // a blocked write to the terminal is not interrupted
    ::sigaction(kSignals[i], &action, &previous_[i]);
  }
  if (::tcgetattr(STDIN_FILENO, &g_terminal) != 0) return;
  termios quiet = g_terminal;
  quiet.c_lflag &= ~static_cast<tcflag_t>(ECHO);
  g_echo_is_off = ::tcsetattr(STDIN_FILENO, TCSANOW, &quiet) == 0;
}

SignalWatch::~SignalWatch() {
  restore_echo();
  for (size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &previous_[i], nullptr);
}

int SignalWatch::last_signal() { return g_signal; }

}  // namespace zinc
