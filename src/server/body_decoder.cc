#include "server/body_decoder.h"

#include <zlib.h>

#include <algorithm>
#include <array>

#include "base/check.h"

namespace zinc {
namespace {

constexpr int kGzipOrZlib = 15 + 32;  // the largest window; the format is detected

}  // namespace

struct BodyDecoder::Inflater {
  explicit Inflater(size_t n) : max_bytes(n) { ZINC_CHECK(inflateInit2(&stream, kGzipOrZlib) == Z_OK); }
  ~Inflater() { inflateEnd(&stream); }

  z_stream stream{};
  size_t max_bytes;
  bool is_complete = false;
};

bool is_compressed(std::string_view content_encoding) {
  return content_encoding == "gzip" || content_encoding == "x-gzip" || content_encoding == "deflate";
}

BodyDecoder::BodyDecoder(size_t max_bytes) : inflater_(std::make_unique<Inflater>(max_bytes)) {}
BodyDecoder::BodyDecoder(BodyDecoder&&) noexcept = default;
BodyDecoder::~BodyDecoder() = default;

BodyDecoder::State BodyDecoder::decode(std::string_view bytes, std::string& out) {
  z_stream& stream = inflater_->stream;
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  std::array<char, 64 << 10> block;
  do {
    if (inflater_->is_complete) return stream.avail_in > 0 ? State::corrupt : State::ok;  // bytes after the end
    stream.next_out = reinterpret_cast<Bytef*>(block.data());
    stream.avail_out = static_cast<uInt>(block.size());
    const int result = inflate(&stream, Z_NO_FLUSH);
    if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR) return State::corrupt;
    inflater_->is_complete = result == Z_STREAM_END;
    const size_t n = block.size() - stream.avail_out;
    if (n > inflater_->max_bytes - out.size()) return State::too_large;
    out.append(block.data(), n);
  } while (stream.avail_in > 0 || (stream.avail_out == 0 && !inflater_->is_complete));
  return State::ok;
}

bool BodyDecoder::is_truncated() const { return inflater_->stream.total_in > 0 && !inflater_->is_complete; }

}  // namespace zinc
