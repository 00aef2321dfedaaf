// A byte stream split anywhere, with any stop strings, gives the same text as the complete bytes.
// Input: stop strings and bytes, separated by 0xFE (never valid UTF-8); the last part is streamed.
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/utf8.h"
#include "text/detokenizer.h"

namespace zinc {
namespace {

constexpr char kSeparator = '\xFE';
constexpr size_t kMaxInput = 2048;

std::string expected_text(const std::string& text, const std::vector<std::string>& stops) {
  for (size_t end = 1; end <= text.size(); ++end) {
    size_t longest = 0;
    for (const std::string& stop : stops) {
      if (std::string_view(text).substr(0, end).ends_with(stop)) longest = std::max(longest, stop.size());
    }
    if (longest > 0) return text.substr(0, end - longest);
  }
  return text;
}

void check(std::string_view input) {
  std::vector<std::string> stops;
  for (size_t at = input.find(kSeparator); at != std::string_view::npos; at = input.find(kSeparator)) {
    stops.push_back(replace_invalid_utf8(input.substr(0, at)));
    input.remove_prefix(at + 1);
  }
  const std::string expected = expected_text(replace_invalid_utf8(input), stops);
  for (const size_t n_step : {size_t{1}, size_t{3}, input.size() + 1}) {
    TextStream stream(stops);
    std::string out;
    for (size_t at = 0; at < input.size(); at += n_step) {
      const std::string_view piece = stream.push(input.substr(at, n_step));
      ZINC_CHECK(is_valid_utf8(piece));
      out += piece;
    }
    out += stream.finish();
    ZINC_CHECK(out == expected);
  }
}

}  // namespace
}  // namespace zinc

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  zinc::check({reinterpret_cast<const char*>(data), std::min(size, zinc::kMaxInput)});
  return 0;
}
