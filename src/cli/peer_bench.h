// Another engine's benchmark for comparison: any program that accepts llama-bench's options and prints its JSON.
#pragma once

#include <string>
#include <vector>

#include "engine/bench.h"

namespace zinc {

class PeerBench {
 public:
  // `command` is split at blanks, except inside quotes; no shell is involved. The program must exist.
  static Result<PeerBench> find(const std::string& command);

  // One run of one test: COMMAND -m model -p .. -n .. -d .. -r 1 -t .. -o json.
  Result<double> tokens_per_s(const std::string& model, const BenchTest& test, int n_threads) const;

 private:
  explicit PeerBench(std::vector<std::string> command) : command_(std::move(command)) {}
  std::vector<std::string> command_;
};

// The speed of the test in llama-bench's JSON.
Result<double> read_peer_speed(std::string_view text, const BenchTest& test);

}  // namespace zinc
