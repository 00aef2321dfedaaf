// The chat page: files made by web/ and embedded compressed. Everything it needs comes from here; the policy it is
// sent with lets it ask nobody else. Immutable; any thread.
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
  bool is_immutable;  // its name changes with its content
  // A form that is empty is not there; either `plain` or `gzip` is.
  std::string_view plain, gzip, brotli;
};
extern const PageFile kPageFiles[];  // ended by a path that is nullptr

// Whether it is a GET or HEAD of one of the page's files.
bool asks_for_page(const HttpRequest& request);
// The answer to such a request; nothing for others.
std::optional<HttpResponse> page_response(const HttpRequest& request);

}  // namespace zinc
