// Untrusted JSON: any bytes are parsed or rejected, and a parsed value survives printing and parsing again.
#include <cstdint>
#include <string>

#include "base/check.h"
#include "base/json.h"
#include "base/utf8.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace zinc;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const Result<json::value> parsed = parse_json(text);
  if (!parsed.ok()) {
    ZINC_CHECK(!parsed.error().message.empty() && is_valid_utf8(parsed.error().message));
    return 0;
  }
  ZINC_CHECK(is_valid_utf8(text));
  const std::string line = to_json(parsed.value());
  const Result<json::value> again = parse_json(line);
  ZINC_CHECK(again.ok());
  ZINC_CHECK(to_json(again.value()) == line);
  const Result<json::value> pretty = parse_json(to_pretty_json(parsed.value()));
  ZINC_CHECK(pretty.ok());
  ZINC_CHECK(to_json(pretty.value()) == line);
  return 0;
}
