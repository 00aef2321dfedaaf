#include <unistd.h>

#include <atomic>
#include <csignal>

#include "base/job_signals.h"

namespace zinc {
namespace {

std::atomic<bool> g_has_sigcont = false;
static_assert(std::atomic<bool>::is_always_lock_free);

}  // namespace

void watch_sigcont() {
  struct sigaction action {};
  action.sa_handler = [](int) { g_has_sigcont = true; };
  action.sa_flags = SA_RESTART;
  sigaction(SIGCONT, &action, nullptr);
}

bool take_sigcont() { return g_has_sigcont.exchange(false); }

void ignore_termination_signals() {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) std::signal(signal, SIG_IGN);
}

void exit_at_once(int code) { _exit(code); }

}  // namespace zinc
