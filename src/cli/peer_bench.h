// Another engine's benchmark for comparison: any program that accepts the options of llama-bench, or for batches of
// llama-batched-bench, and prints its JSON.
#pragma once

#include <string>
#include <vector>

#include "engine/batch_bench.h"
#include "engine/bench.h"

namespace zinc {

class PeerBench {
 public:
  // `command` is split at blanks, except inside quotes; no shell is involved. The program must exist; `expected` is its
  // usual name, for messages.
  static Result<PeerBench> find(const std::string& command, std::string_view expected);

  // One run of one test: COMMAND -m model -p .. -n .. -d .. -r 1 -t .. -o json.
  Result<double> tokens_per_s(const std::string& model, const BenchTest& test, int n_threads) const;
  // COMMAND -m model -c .. -npp .. -ntg .. -npl .. -t .. --output-format jsonl.
  Result<BatchTimes> batch_times(const std::string& model, const BatchTest& test, int n_threads) const;

 private:
  // Its standard output. Fails if the program does; `test` is for the message.
  Result<std::string> run(const std::vector<std::string>& arguments, const std::string& test) const;

  explicit PeerBench(std::vector<std::string> command) : command_(std::move(command)) {}
  std::vector<std::string> command_;
};

// The speed of the test in llama-bench's JSON.
Result<double> read_peer_speed(std::string_view text, const BenchTest& test);
// The times of the test in llama-batched-bench's JSON lines.
Result<BatchTimes> read_peer_times(std::string_view text, const BatchTest& test);

}  // namespace zinc
