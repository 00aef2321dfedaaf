// One HTTP request and one complete response, as plain data.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace zinc {

using HttpHeader = std::pair<std::string, std::string>;

struct HttpRequest {
  std::string method;
  std::string path;                 // of the request target, not decoded, without the query and double slashes
  std::vector<HttpHeader> headers;  // names in lower case
  std::string body;
  bool keeps_alive = false;
  bool is_http_1_0 = false;
  std::string client;     // the peer's address
  std::string authority;  // of a target in absolute form; replaces the Host header. Else empty

  // The first header of this (lower-case) name; empty: none.
  std::string_view header(std::string_view name) const;
};

struct HttpResponse {
  int status = 200;
  std::string body;
  std::string content_type = "application/json";
  std::vector<HttpHeader> headers = {};
  std::string error = {};  // for the log line: why the request was refused; not sent
};

std::string_view reason_phrase(int status);

// Status line, headers, empty line. `length` < 0: chunked transfer encoding.
std::string response_head(const HttpResponse& response, long long length, bool keeps_alive);

}  // namespace zinc
