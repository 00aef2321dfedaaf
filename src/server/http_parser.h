// Parses one HTTP/1.x request from the bytes of a connection. Limits are checked as the bytes arrive, so that nothing
// larger is ever stored. Used by one thread; one parser per request.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include "server/http_message.h"

namespace zinc {

struct HttpLimits {
  size_t header_bytes = 16 << 10;  // request line and all headers
  size_t body_bytes = 32 << 20;
};

class HttpParser {
 public:
  enum class State { header, body, done, failed };

  explicit HttpParser(const HttpLimits& limits);
  HttpParser(HttpParser&&) noexcept;
  HttpParser& operator=(HttpParser&&) noexcept;
  ~HttpParser();

  // Returns how many of `bytes` it consumed; the caller passes the rest again, with more appended.
  size_t push(std::string_view bytes);

  State state() const;
  const HttpRequest& head() const;  // everything except the body, once the headers are parsed
  size_t n_body_bytes() const;      // read so far
  bool wants_continue() const;      // once the headers are parsed: the client waits for "100 Continue"
  int error_status() const;         // REQUIRES: failed
  std::string_view error_message() const;
  HttpRequest take();  // REQUIRES: done

 private:
  struct BeastParser;
  std::unique_ptr<BeastParser> parser_;
};

}  // namespace zinc
