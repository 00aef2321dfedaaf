// Values as bytes in memory, for another process of the same program: their layout is the compiler's. A reader takes
// them in the order in which they were written; reading more than was written aborts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/check.h"

namespace zinc {

class BlobWriter {
 public:
  template <class T>
  requires std::is_trivially_copyable_v<T>
  void put(const T& value) {
    const auto bytes = std::as_bytes(std::span(&value, 1));
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  // The number of elements, and their bytes.
  template <class T>
  requires std::is_trivially_copyable_v<T>
  void put_all(std::span<const T> values) {
    put(uint64_t{values.size()});
    const auto bytes = std::as_bytes(values);
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  void put_text(std::string_view text) { put_all(std::span<const char>(text)); }
  void append(const BlobWriter& other) { bytes_.insert(bytes_.end(), other.bytes_.begin(), other.bytes_.end()); }

  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

class BlobReader {
 public:
  explicit BlobReader(std::span<const std::byte> bytes) : rest_(bytes) {}

  template <class T>
  requires std::is_trivially_copyable_v<T> T get() {
    T value;
    std::memcpy(&value, next(sizeof(T)).data(), sizeof(T));
    return value;
  }
  template <class T>
  requires std::is_trivially_copyable_v<T>
  void get_all(std::vector<T>& values) {
    const uint64_t n = get<uint64_t>();
    ZINC_CHECK(n <= rest_.size() / sizeof(T));
    values.resize(n);
    if (n > 0) std::memcpy(values.data(), next(n * sizeof(T)).data(), n * sizeof(T));
  }
  template <class T>
  std::vector<T> get_all() {
    std::vector<T> values;
    get_all(values);
    return values;
  }
  std::string get_text() {
    const std::vector<char> text = get_all<char>();
    return {text.begin(), text.end()};
  }
  std::span<const std::byte> rest() const { return rest_; }

 private:
  std::span<const std::byte> next(size_t n) {
    ZINC_CHECK(n <= rest_.size());
    const std::span<const std::byte> bytes = rest_.first(n);
    rest_ = rest_.subspan(n);
    return bytes;
  }
  std::span<const std::byte> rest_;
};

}  // namespace zinc
