// Zeroed memory aligned to cache lines, backed by huge pages where the system has them. Movable. It takes physical
// memory when it is first written.
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
  // Address space only, which must not be read or written: for layouts whose memory is only counted.
  static AlignedBuffer reserve(size_t n_bytes);
  static size_t allocated_bytes();  // of all buffers of this process

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
    bool is_counted;
    void operator()(std::byte* p) const;
  };
  std::unique_ptr<std::byte, Unmap> data_{nullptr, Unmap{0, false}};
  size_t size_ = 0;
};

// AlignedBuffer::allocate or AlignedBuffer::reserve.
using AllocateBuffer = AlignedBuffer (*)(size_t n_bytes);

}  // namespace zinc
