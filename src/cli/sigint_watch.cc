#include "cli/sigint_watch.h"

#include <atomic>
#include <csignal>

namespace zinc {
namespace {

std::atomic<bool> g_interrupted = false;

}  // namespace

SigintWatch::SigintWatch() {
  g_interrupted = false;
  previous_ = std::signal(SIGINT, [](int) {
    g_interrupted = true;
    std::signal(SIGINT, SIG_DFL);
  });
}

SigintWatch::~SigintWatch() { std::signal(SIGINT, previous_); }

bool SigintWatch::is_interrupted() { return g_interrupted; }

}  // namespace zinc
