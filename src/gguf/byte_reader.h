// Sequential reader of a file's bytes. A read past the end returns false, consumes nothing and records the requested
// size for the error message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>

namespace zinc {

class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  size_t offset() const { return offset_; }
  size_t remaining() const { return bytes_.size() - offset_; }
  uint64_t requested() const { return requested_; }  // bytes, by the last read
  std::span<const std::byte> bytes_from(size_t begin) const { return bytes_.subspan(begin, offset_ - begin); }

  template <class T>
  bool read(T& out) {
    static_assert(std::is_arithmetic_v<T>);
    const size_t begin = offset_;
    if (!skip(sizeof(T))) return false;
    std::memcpy(&out, bytes_.data() + begin, sizeof(T));
    return true;
  }

  // A length of 64 bits and that many bytes.
  bool read(std::string_view& out) {
    uint64_t n = 0;
    if (!read(n)) return false;
    if (!skip(n)) {
      offset_ -= sizeof(n);
      return false;
    }
    out = {reinterpret_cast<const char*>(bytes_.data() + offset_ - n), n};
    return true;
  }

  bool skip(uint64_t n) {
    requested_ = n;
    if (n > remaining()) return false;
    offset_ += n;
    return true;
  }

 private:
  std::span<const std::byte> bytes_;
  size_t offset_ = 0;
  uint64_t requested_ = 0;
};

}  // namespace zinc
