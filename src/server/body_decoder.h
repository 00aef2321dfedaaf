// Decompresses a request body (Content-Encoding gzip or deflate) as its bytes arrive. The size limit applies to the
// decompressed bytes, so that a small body cannot become a huge one. One thread; one decoder per request.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace zinc {

bool is_compressed(std::string_view content_encoding);  // in lower case: a coding that the decoder supports

class BodyDecoder {
 public:
  enum class State : uint8_t { ok, corrupt, too_large };

  explicit BodyDecoder(size_t max_bytes);
  BodyDecoder(BodyDecoder&&) noexcept;
  ~BodyDecoder();

  // Appends the decompressed bytes to `out`, which never gets longer than max_bytes.
  State decode(std::string_view bytes, std::string& out);
  bool is_truncated() const;  // the compressed data has begun and not ended

 private:
  struct Inflater;
  std::unique_ptr<Inflater> inflater_;
};

}  // namespace zinc
