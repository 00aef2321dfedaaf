// What a load on a server consists of: kinds of requests and how often each comes, read from JSON lines. Request number
// i is the same in every run and against every server: its kind follows from the weights, its words from i.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace zinc {

struct RequestKind {
  std::string name;
  int weight = 1;
  int shared_words = 0;    // of a system prompt that all requests of the kind begin with
  int prompt_words = 1;    // of the request itself; no two begin alike
  int max_tokens = 64;     // of the answer
  json::object body = {};  // further fields of the request, or other values for those it has
};

class RequestMix {
 public:
  // One JSON object a line, with the fields of RequestKind; empty lines are left out. `name` is for errors.
  static Result<RequestMix> parse(std::string_view lines, std::string_view name);
  static RequestMix standard();  // short chats, documents, an agent's long instructions
  static RequestMix of(RequestKind kind) { return RequestMix({std::move(kind)}); }

  const RequestKind& kind(size_t request) const { return kinds_[order_[request % order_.size()]]; }
  // A streamed chat completion, greedy unless the kind says otherwise.
  json::object body(size_t request) const;

 private:
  explicit RequestMix(std::vector<RequestKind> kinds);

  std::vector<RequestKind> kinds_;
  std::vector<size_t> order_;  // a round: each kind as often as it weighs, evenly spread
};

}  // namespace zinc
