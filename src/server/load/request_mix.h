// The request mix of a load test: kinds of requests with weights, read from JSON lines. Request i is the same in every
// run and against every server: its kind follows from the weights, its words from i.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace zinc {

struct RequestKind {
  std::string name;
  int weight = 1;
  int shared_words = 0;    // of a system prompt shared by all requests of the kind
  int prompt_words = 1;    // of the user message; different in every request
  int max_tokens = 64;     // output tokens
  json::object body = {};  // further request fields, or overrides
};

class RequestMix {
 public:
  // One JSON object per line, with the fields of RequestKind; empty lines are ignored. `name` is for error messages.
  static Result<RequestMix> parse(std::string_view lines, std::string_view name);
  static RequestMix standard();  // short chats, documents, agents with long instructions
  static RequestMix of(RequestKind kind) { return RequestMix({std::move(kind)}); }

  const RequestKind& kind(size_t request) const { return kinds_[order_[request % order_.size()]]; }
  // A streamed chat completion, greedy unless the kind overrides it.
  json::object body(size_t request) const;

 private:
  explicit RequestMix(std::vector<RequestKind> kinds);

  std::vector<RequestKind> kinds_;
  std::vector<size_t> order_;  // one round: each kind as often as its weight, evenly spread
};

}  // namespace zinc
