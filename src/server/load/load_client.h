// A load generator client: runs many streamed chat completions concurrently and records the arrival time of each text
// chunk. Works with any OpenAI-compatible server. One thread: responses are received during wait().
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"

namespace zinc {

// One request and the response received so far. Times are seconds since the client was created.
struct LoadRequest {
  size_t number = 0;
  double sent_s = 0, end_s = 0;
  std::vector<double> chunk_s = {};  // arrival times of text chunks; about one per token
  std::string text = {};
  int n_prompt = 0, n_cached = 0, n_completion = 0;  // tokens as the server counts them; chunks if it does not
  std::string error = {};                            // why there is no complete response
  bool is_done = false;

  double first_token_s() const { return chunk_s.empty() ? 0 : chunk_s.front() - sent_s; }
};

class LoadClient {
 public:
  // `url` is the server's, with or without /v1. An empty key is not sent.
  LoadClient(std::string url, std::string key);
  ~LoadClient();  // closes open connections
  LoadClient(const LoadClient&) = delete;
  LoadClient& operator=(const LoadClient&) = delete;

  // Sends a request; wait() fills the record, which lives as long as the client.
  const LoadRequest& send(size_t number, const json::object& body);
  void wait(std::chrono::milliseconds at_most);  // for new data
  int n_running() const { return n_running_; }
  double now_s() const;

 private:
  struct Transfer;

  void finish(Transfer& call, int curl_code);

  std::string url_, key_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  void* multi_;                                       // CURLM
  std::vector<std::unique_ptr<Transfer>> transfers_;  // every request, in the order sent
  int n_running_ = 0;
};

}  // namespace zinc
