#include "tests/emulated_gpu/copies.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace zinc::emulated {

void fail_kernel(const std::string& kernel, const char* why) {
  std::fprintf(stderr, "emulated GPU: kernel %s %s\n", kernel.c_str(), why);
  std::abort();
}

Copy::Copy(void* to, const void* bytes, size_t n_bytes)
    : to_(static_cast<std::byte*>(to)),
      bytes_(static_cast<const std::byte*>(bytes), static_cast<const std::byte*>(bytes) + n_bytes) {
  std::memset(to, kPoisonByte, n_bytes);
}

Copy Copy::of_value(void* to, const void* value, size_t n_bytes) { return {to, value, n_bytes}; }

Copy Copy::of_memory(void* to, const void* from, size_t n_bytes) {
  Copy copy(to, from, n_bytes);
  copy.from_ = from;
  return copy;
}

void Copy::complete(const std::string& kernel) const {
  if (from_ && std::memcmp(from_, bytes_.data(), size()) != 0)
    fail_kernel(kernel, "writes to the source of a pending copy");
  const auto is_poison = [](std::byte b) { return b == std::byte{kPoisonByte}; };
  if (!std::all_of(to_, to_ + size(), is_poison)) fail_kernel(kernel, "writes to the destination of a pending copy");
  std::memcpy(to_, bytes_.data(), size());
}

size_t MbarrierCopies::complete(const void* mbarrier, const std::string& kernel) {
  const auto found = copies_.find(mbarrier);
  if (found == copies_.end()) return 0;
  size_t n_bytes = 0;
  for (const Copy& copy : found->second) {
    copy.complete(kernel);
    n_bytes += copy.size();
  }
  copies_.erase(found);
  return n_bytes;
}

}  // namespace zinc::emulated
