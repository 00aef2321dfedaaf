// Writes the response to one request: one complete response, or a stream of events or lines. Implemented by a
// connection, and by tests. Event-loop thread only.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "server/http_message.h"

namespace zinc {

inline constexpr std::string_view kEventStreamType = "text/event-stream; charset=utf-8";

class Reply {
 public:
  virtual ~Reply() = default;

  virtual void send(HttpResponse response) = 0;  // the complete response; nothing may follow

  // Or: start, any number of writes, end.
  virtual void start_stream(std::string_view content_type = kEventStreamType) = 0;
  // False: the client reads too slowly or has disconnected, and the connection is being dropped; write no more.
  virtual bool write(std::string_view bytes) = 0;
  virtual void end_stream() = 0;

  // The response comes later, and the request body is kept until then: a client that closes the connection before the
  // response counts as disconnected.
  virtual void defer() {}
  // Whether the client still waits for the response.
  virtual bool is_open() const = 0;
  // Called at most once, if the client disconnects before the response is complete. Setting it means that the request
  // has been read: its body no longer counts toward the limit.
  virtual void on_disconnect(std::function<void()> callback) = 0;

  std::vector<HttpHeader> headers;  // further response headers
  std::shared_ptr<void> lease;      // released when the response is complete or the client has disconnected
  json::object log;                 // added to the request's log line: model, token counts, finish reason
};

}  // namespace zinc
