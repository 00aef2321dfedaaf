// A client that has many streamed chat completions under way at once and notes when each piece of text came. Speaks to
// any server with OpenAI's API. One thread: answers come in while wait() is called.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"

namespace zinc {

// One request and its answer, as far as it has come. Times are seconds since the client was made.
struct LoadedRequest {
  size_t number = 0;
  double sent_s = 0, end_s = 0;
  std::vector<double> piece_s = {};  // when pieces of text came; about one a token
  std::string text = {};
  int n_prompt = 0, n_cached = 0, n_completion = 0;  // tokens as the server counts them; pieces if it does not
  std::string error = {};                            // why there is no whole answer
  bool is_over = false;

  double first_token_s() const { return piece_s.empty() ? 0 : piece_s.front() - sent_s; }
};

class LoadClient {
 public:
  // `url` is the server's, with or without /v1. An empty key is not sent.
  LoadClient(std::string url, std::string key);
  ~LoadClient();  // hangs up on what is left
  LoadClient(const LoadClient&) = delete;
  LoadClient& operator=(const LoadClient&) = delete;

  // Sends a request; the record fills up during wait() and stays as long as the client.
  const LoadedRequest& send(size_t number, const json::object& body);
  void wait(std::chrono::milliseconds at_most);  // for anything to come
  int n_running() const { return n_running_; }
  double now_s() const;

 private:
  struct Call;

  void finish(Call& call, int curl_code);

  std::string url_, key_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  void* multi_;                               // CURLM
  std::vector<std::unique_ptr<Call>> calls_;  // every request, in the order sent
  int n_running_ = 0;
};

}  // namespace zinc
