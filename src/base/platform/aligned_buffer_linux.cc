#include "base/aligned_buffer.h"

#include <sys/mman.h>

namespace zinc {

void AlignedBuffer::Unmap::operator()(std::byte* p) const { ::munmap(p, n_bytes); }

AlignedBuffer AlignedBuffer::allocate(size_t n_bytes) {
  AlignedBuffer buffer;
  if (n_bytes == 0) return buffer;
  void* address = ::mmap(nullptr, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) return buffer;
  ::madvise(address, n_bytes, MADV_HUGEPAGE);  // fewer page-table walks; failure is harmless
  buffer.data_ = {static_cast<std::byte*>(address), Unmap{n_bytes}};
  buffer.size_ = n_bytes;
  return buffer;
}

}  // namespace zinc
