// Runs another program and waits for it: argument vector, no shell, empty standard input.
// The program is found on PATH unless its name has a slash. The child is killed if this process dies, or one second
// after a deferred Ctrl-C (base/deferred_sigint.h) or a cancellation if it still runs.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

namespace zinc {

enum class ProcessOutput : uint8_t {
  to_stderr,  // both streams go to our standard error as they arrive
  capture,    // both are returned
};

struct Process {
  std::vector<std::string> argv;
  ProcessOutput output = ProcessOutput::capture;
  std::filesystem::path folder = {};                                  // working directory; empty: ours
  std::vector<std::pair<std::string, std::string>> environment = {};  // added to ours
  std::chrono::milliseconds time_limit{0};                            // then SIGKILL; 0: none
  std::function<bool()> cancelled = [] { return false; };             // polled several times a second
};

struct ProcessResult {
  int exit_code = 0;  // 128 + signal number if killed by a signal, as in a shell
  bool timed_out = false;
  std::string out = {}, err = {};  // captured, at most kMaxCaptureBytes each; the rest is read and dropped
};

constexpr size_t kMaxCaptureBytes = size_t{64} << 20;

// Fails only if the program could not be started (not_found: no such program).
// REQUIRES: !process.argv.empty()
Result<ProcessResult> run_process(const Process& process);

}  // namespace zinc
