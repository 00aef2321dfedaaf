// Every limit that a client can reach. Reported by /props.
#pragma once

#include <chrono>
#include <cstddef>

#include "server/http_parser.h"

namespace zinc {

struct ServerLimits {
  HttpLimits http;
  size_t connections = 4096;
  size_t all_bodies_bytes = 512 << 20;  // of all requests being read or prepared; one client may use three quarters
  size_t small_body_bytes = 64 << 10;   // bodies up to this size are always accepted
  size_t pending_bytes = 256 << 10;     // written but not read by the client; a stream further behind is dropped
  size_t all_unread_bytes = 512 << 20;  // of all responses; above it the clients that read slowest are dropped

  std::chrono::seconds header_time{10};  // from the first byte to the end of the headers; also TLS handshakes
  std::chrono::seconds body_time{60};    // from there to the end of the body, or per MiB of it
  std::chrono::seconds idle_time{60};    // between requests of one connection
  std::chrono::seconds write_time{60};   // without progress of a write; in total longer for large responses
  std::chrono::seconds ping_time{15};    // between events of a stream, before a ping is sent
  std::chrono::seconds drain_time{30};   // for running responses to finish after a stop signal
  std::chrono::seconds drain_delay{0};   // before that: /ready is 503, but requests are still accepted

  int n = 128;         // choices per prompt
  int choices = 2048;  // prompts times n; submitted to the engine a few at a time
  int stop_strings = 16;
  size_t stop_string_bytes = 256;
  size_t template_kwargs_bytes = 64 << 10;  // of chat_template_kwargs, as JSON
  int top_logprobs = 20;
  int embedding_inputs = 2048;
  bool strict_fields = false;      // unknown request fields are errors, not ignored
  size_t worker_bytes = 16 << 10;  // longer bodies are parsed on the worker thread, so that other streams do not wait
};

}  // namespace zinc
