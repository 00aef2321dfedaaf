// Reads a file's bytes front to back. A read past the end returns false, consumes nothing and remembers how many bytes
// it wanted, so that the caller can say so.
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

  size_t at() const { return at_; }
  size_t remaining() const { return bytes_.size() - at_; }
  uint64_t wanted() const { return wanted_; }  // by the last read that failed
  std::span<const std::byte> since(size_t begin) const { return bytes_.subspan(begin, at_ - begin); }

  template <class T>
  bool read(T& out) {
    static_assert(std::is_arithmetic_v<T>);
    const size_t begin = at_;
    if (!skip(sizeof(T))) return false;
    std::memcpy(&out, bytes_.data() + begin, sizeof(T));
    return true;
  }

  // A length of 64 bits and that many bytes.
  bool read(std::string_view& out) {
    uint64_t n = 0;
    if (!read(n)) return false;
    if (!skip(n)) {
      at_ -= sizeof(n);
      return false;
    }
    out = {reinterpret_cast<const char*>(bytes_.data() + at_ - n), n};
    return true;
  }

  bool skip(uint64_t n) {
    wanted_ = n;
    if (n > remaining()) return false;
    at_ += n;
    return true;
  }

 private:
  std::span<const std::byte> bytes_;
  size_t at_ = 0;
  uint64_t wanted_ = 0;
};

}  // namespace zinc
