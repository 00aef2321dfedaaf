// Bytes of a connection become one HTTP/1.x request. Limits are checked as the bytes come, so that nothing larger is
// ever kept. Used by one thread; one parser per request.
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

  // Takes what it can of `bytes` and says how much that was; the caller brings the rest again, with more behind it.
  size_t push(std::string_view bytes);

  State state() const;
  const HttpRequest& head() const;  // all but the body, once the header is there
  size_t n_body_bytes() const;      // read so far
  bool wants_continue() const;      // once the header is there: the client waits for "100 Continue"
  int error_status() const;         // REQUIRES: failed
  std::string_view error_message() const;
  HttpRequest take();  // REQUIRES: done

 private:
  struct Machine;
  std::unique_ptr<Machine> machine_;
};

}  // namespace zinc
