// Bump allocator of one rendering, freed all at once. Objects must be trivially destructible, so deep or cyclic values
// need no cleanup. One thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace zinc::jinja {

class Arena {
 public:
  void* allocate(size_t n_bytes) {
    n_bytes = (n_bytes + kAlign - 1) & ~(kAlign - 1);
    used_bytes_ += n_bytes;
    if (n_bytes > left_bytes_) grow(n_bytes);
    std::byte* const memory = next_;
    next_ += n_bytes;
    left_bytes_ -= n_bytes;
    return memory;
  }

  template <class T, class... Args>
  T* make(Args&&... args) {
    static_assert(std::is_trivially_destructible_v<T> && alignof(T) <= kAlign);
    return new (allocate(sizeof(T))) T{std::forward<Args>(args)...};
  }

  template <class T>
  std::span<T> array(size_t n) {
    static_assert(std::is_trivially_destructible_v<T> && alignof(T) <= kAlign);
    T* const first = static_cast<T*>(allocate(n * sizeof(T)));
    std::uninitialized_default_construct_n(first, n);
    return {first, n};
  }

  template <class T>
  std::span<T> copy(std::span<const T> items) {
    static_assert(std::is_trivially_copyable_v<T>);
    const std::span<T> copied = array<T>(items.size());
    std::copy(items.begin(), items.end(), copied.begin());
    return copied;
  }

  std::string_view copy(std::string_view text) {
    char* const bytes = static_cast<char*>(allocate(text.size()));
    if (!text.empty()) std::memcpy(bytes, text.data(), text.size());
    return {bytes, text.size()};
  }

  size_t used_bytes() const { return used_bytes_; }

 private:
  static constexpr size_t kAlign = 8;
  static constexpr size_t kFirstChunkBytes = 16u << 10;
  static constexpr size_t kLargestChunkBytes = 1u << 20;

  void grow(size_t n_bytes) {
    const size_t wanted = chunks_.empty() ? kFirstChunkBytes : std::min(last_chunk_bytes_ * 2, kLargestChunkBytes);
    last_chunk_bytes_ = wanted;
    left_bytes_ = std::max(wanted, n_bytes);
    chunks_.emplace_back(new std::byte[left_bytes_]);
    next_ = chunks_.back().get();
  }

  std::vector<std::unique_ptr<std::byte[]>> chunks_;
  std::byte* next_ = nullptr;
  size_t left_bytes_ = 0;
  size_t last_chunk_bytes_ = 0;
  size_t used_bytes_ = 0;
};

// A growable array in an arena. Growing wastes the old storage until the arena is freed.
template <class T>
class ArenaVector {
 public:
  void push(Arena& arena, T item) {
    if (size_ == items_.size()) {
      const std::span<T> larger = arena.array<T>(std::max<size_t>(4, items_.size() * 2));
      std::copy(items_.begin(), items_.end(), larger.begin());
      items_ = larger;
    }
    items_[size_++] = item;
  }
  void clear() { size_ = 0; }
  size_t size() const { return size_; }
  T* begin() { return items_.data(); }
  T* end() { return items_.data() + size_; }
  std::span<const T> view() const { return items_.first(size_); }

 private:
  std::span<T> items_;
  size_t size_ = 0;
};

}  // namespace zinc::jinja
