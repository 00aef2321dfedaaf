// Zeroed memory aligned to cache lines, backed by huge pages where the system has them. Movable.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

namespace zinc {

class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  // size() == 0 if the allocation fails.
  static AlignedBuffer allocate(size_t n_bytes);

  std::byte* data() const { return data_.get(); }
  size_t size() const { return size_; }
  std::span<std::byte> bytes() const { return {data_.get(), size_}; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_.get());
  }

 private:
  struct Unmap {
    size_t n_bytes;
    void operator()(std::byte* p) const;
  };
  std::unique_ptr<std::byte, Unmap> data_{nullptr, Unmap{0}};
  size_t size_ = 0;
};

}  // namespace zinc
