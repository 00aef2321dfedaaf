// A gpu::Device in host memory, for unit tests of the host code that GPU backends share.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "backend/gpu/device.h"

namespace zinc::gpu {

class HostDevice final : public Device {
 public:
  using Device::allocate;
  Result<Buffer> allocate(size_t n_bytes, std::string_view what, Memory) override {
    if (n_bytes > max_bytes) return fail(ErrorCode::out_of_memory, "{} bytes for {}", n_bytes, what);
    allocations.push_back({std::string(what), n_bytes});
    auto memory = std::make_unique<HostMemory>(n_bytes);
    void* const begin = memory->bytes.data();
    return Buffer(std::move(memory), reinterpret_cast<Address>(begin), begin, n_bytes);
  }
  Status write(const Buffer& to, size_t offset, std::span<const std::byte> from) override {
    std::memcpy(to.host_ptr<std::byte>() + offset, from.data(), from.size());
    return ok_status();
  }
  Status read(const Buffer& from, size_t offset, std::span<std::byte> to) override {
    std::memcpy(to.data(), from.host_ptr<std::byte>() + offset, to.size());
    return ok_status();
  }
  Status copy(std::span<const BufferCopy> copies) override {
    if (copies_fail) return fail(ErrorCode::device_lost, "copying failed");
    for (const BufferCopy& c : copies) {
      std::memcpy(c.to.host_ptr<std::byte>() + c.to_offset, c.from.host_ptr<std::byte>() + c.from_offset, c.n_bytes);
    }
    return ok_status();
  }
  Status wait_all() override { return ok_status(); }

  struct Allocated {
    std::string what;
    size_t n_bytes;
  };
  std::vector<Allocated> allocations;
  size_t max_bytes = size_t{1} << 40;  // larger allocations fail
  bool copies_fail = false;

 private:
  struct HostMemory final : Allocation {
    explicit HostMemory(size_t n_bytes) : bytes(n_bytes) {}
    std::vector<std::byte> bytes;
  };
};

}  // namespace zinc::gpu
