#include "base/aligned_buffer.h"

#include <sys/mman.h>

#include <atomic>

namespace zinc {
namespace {

std::atomic<size_t> n_allocated_bytes = 0;

}  // namespace

void AlignedBuffer::Unmap::operator()(std::byte* p) const {
  ::munmap(p, n_bytes);
  if (is_counted) n_allocated_bytes -= n_bytes;
}

AlignedBuffer AlignedBuffer::allocate(size_t n_bytes) {
  AlignedBuffer buffer;
  if (n_bytes == 0) return buffer;
  void* address = ::mmap(nullptr, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) return buffer;
  ::madvise(address, n_bytes, MADV_HUGEPAGE);  // fewer page-table walks; failure is harmless
  buffer.data_ = {static_cast<std::byte*>(address), Unmap{n_bytes, true}};
  buffer.size_ = n_bytes;
  n_allocated_bytes += n_bytes;
  return buffer;
}

AlignedBuffer AlignedBuffer::reserve(size_t n_bytes) {
  AlignedBuffer buffer;
  if (n_bytes == 0) return buffer;
  void* address = ::mmap(nullptr, n_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) return buffer;
  buffer.data_ = {static_cast<std::byte*>(address), Unmap{n_bytes, false}};
  buffer.size_ = n_bytes;
  return buffer;
}

size_t AlignedBuffer::allocated_bytes() { return n_allocated_bytes; }

}  // namespace zinc
