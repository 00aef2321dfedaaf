// Bytes of a connection, split at random. First byte: seed of the splits; then the bytes. Invariants: splits do not
// change the parsed request, limits are never exceeded, nothing is consumed after the end of a request.
#include <cstdint>
#include <string>

#include "base/check.h"
#include "server/http_parser.h"

namespace zinc {
namespace {

constexpr HttpLimits kLimits{.header_bytes = 2048, .body_bytes = 1024};

struct Reading {
  HttpParser parser{kLimits};
  size_t n_consumed = 0;
};

Reading read(std::string_view bytes, uint32_t seed) {
  Reading out;
  std::string unparsed;
  while (!bytes.empty() && out.parser.state() < HttpParser::State::done) {
    seed = seed * 1664525u + 1013904223u;
    const size_t n = seed == 0 ? bytes.size() : std::min<size_t>(bytes.size(), 1 + (seed >> 24) % 61);
    unparsed += bytes.substr(0, n);
    bytes.remove_prefix(n);
    const size_t consumed = out.parser.push(unparsed);
    ZINC_CHECK(consumed <= unparsed.size());
    unparsed.erase(0, consumed);
    out.n_consumed += consumed;
    ZINC_CHECK(unparsed.size() <= kLimits.header_bytes + 61 || out.parser.state() >= HttpParser::State::done);
  }
  return out;
}

}  // namespace
}  // namespace zinc

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace zinc;
  if (size < 1) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  Reading one = read(bytes, data[0]);
  Reading other = read(bytes, data[0] + 1000u);
  if (one.parser.state() != HttpParser::State::done || other.parser.state() != HttpParser::State::done) return 0;
  ZINC_CHECK(one.n_consumed == other.n_consumed);
  const HttpRequest first = one.parser.take(), second = other.parser.take();
  ZINC_CHECK(first.method == second.method && first.path == second.path && first.body == second.body);
  ZINC_CHECK(first.headers == second.headers);
  ZINC_CHECK(first.body.size() <= kLimits.body_bytes);
  return 0;
}
