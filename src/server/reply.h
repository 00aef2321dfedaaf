// How a request is answered: with one whole response, or with a stream of server-sent events. Whoever answers sees
// only this; behind it is a connection, or a test. Event-loop thread only.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "server/http_message.h"

namespace zinc {

class Reply {
 public:
  virtual ~Reply() = default;

  virtual void send(HttpResponse response) = 0;  // the whole answer; nothing may follow

  // Or: start, any number of writes, end.
  virtual void start_stream() = 0;
  // False: the client reads too slowly or is gone, and the connection is being dropped; write no more.
  virtual bool write(std::string_view bytes) = 0;
  virtual void end_stream() = 0;

  // The answer is some time off, and the request is kept until then: a client that closes its side meanwhile has left.
  virtual void takes_time() {}
  // Whether anybody still waits for it.
  virtual bool is_open() const = 0;
  // Called at most once, if the client leaves before the answer is complete. Whoever asks for it has read the request:
  // its body counts no longer.
  virtual void on_gone(std::function<void()> callback) = 0;

  std::vector<HttpHeader> headers;  // of the response, beside its own
  json::object log;                 // goes into the request's log line: model, token counts, how it ended
};

}  // namespace zinc
