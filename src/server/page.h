// The chat page: files built from web/ and embedded compressed. The page is self-contained; its content security policy
// forbids connections to other servers. Immutable; any thread.
#pragma once

#include <optional>
#include <string_view>

#include "server/http_message.h"

namespace zinc {

// One file of the page, as the build made it (generated page_files.cc).
struct PageFile {
  const char* path;  // of the URL
  const char* content_type;
  const char* etag;
  bool is_immutable;  // its name contains a hash of its content
  // An empty encoding does not exist; either `plain` or `gzip` does.
  std::string_view plain, gzip, brotli;
};
extern const PageFile kPageFiles[];  // terminated by a nullptr path

// Whether it is a GET or HEAD request for one of the page's files.
bool is_page_request(const HttpRequest& request);
// The response to such a request; nullopt for others.
std::optional<HttpResponse> page_response(const HttpRequest& request);

}  // namespace zinc
