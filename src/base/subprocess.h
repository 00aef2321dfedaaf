// Runs another program and waits for it: an argument vector, no shell, standard input empty.
// The program is found on PATH unless its name has a slash. It ends with us: killed if this process dies, or if it
// still runs a second after a held Ctrl-C has arrived (base/held_interrupt.h) or its caller wants it no longer.
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
  to_stderr,  // both its streams go to our standard error as they come
  capture,    // both are returned
};

struct Process {
  std::vector<std::string> argv;
  ProcessOutput output = ProcessOutput::capture;
  std::filesystem::path folder = {};                                  // where it runs; empty: where we are
  std::vector<std::pair<std::string, std::string>> environment = {};  // set on top of ours
  std::chrono::milliseconds time_limit{0};                            // killed when it passes; 0: none
  std::function<bool()> cancelled = [] { return false; };             // asked several times a second
};

struct ProcessEnd {
  int exit_code = 0;  // 128 + signal if a signal ended it, as shells say it
  bool timed_out = false;
  std::string out = {}, err = {};  // captured, at most kMaxCaptureBytes each; the rest is read and dropped
};

constexpr size_t kMaxCaptureBytes = size_t{64} << 20;

// Fails only if the program could not be started (not_found: there is no such program).
// REQUIRES: !process.argv.empty()
Result<ProcessEnd> run_process(const Process& process);

}  // namespace zinc
