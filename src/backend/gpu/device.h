// The memory of a GPU as the shared host code of this folder uses it. A backend's device class implements it; what is
// particular to a driver (submission, kernels, events) stays in that class. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "base/result.h"

namespace zinc::gpu {

using Address = uint64_t;  // in device memory

enum class Memory : uint8_t {
  device,    // device-local
  upload,    // written by the host, read by the device
  readback,  // written by the device, read by the host
};
inline constexpr size_t kMemoryKinds = 3;

// What a driver has allocated for a Buffer; its destructor frees it.
class Allocation {
 public:
  virtual ~Allocation() = default;
};

// Memory that the device can access, freed with the last buffer that shares it. REQUIRES: the device no longer uses it
// then.
class Buffer {
 public:
  Buffer() = default;
  // `mapped`: its address on the host; nullptr: the host cannot access it.
  Buffer(std::shared_ptr<Allocation> allocation, Address address, void* mapped, size_t n_bytes)
      : allocation_(std::move(allocation)), address_(address), mapped_(mapped), n_bytes_(n_bytes) {}
  Buffer(Buffer&&) = default;
  Buffer& operator=(Buffer&&) = default;

  // Its first n_bytes, in the same memory.
  Buffer share(size_t n_bytes) const { return Buffer(allocation_, address_, mapped_, n_bytes); }

  size_t size() const { return n_bytes_; }
  Address address() const { return address_; }
  const Allocation* allocation() const { return allocation_.get(); }
  template <class T>
  T* device_ptr() const {  // the host must not dereference it
    return reinterpret_cast<T*>(address_);
  }
  template <class T>
  T* host_ptr() const {  // REQUIRES: upload or readback memory
    return static_cast<T*>(mapped_);
  }

 private:
  std::shared_ptr<Allocation> allocation_;  // null: no memory
  Address address_ = 0;
  void* mapped_ = nullptr;
  size_t n_bytes_ = 0;
};

struct BufferCopy {
  const Buffer& from;
  size_t from_offset;
  const Buffer& to;
  size_t to_offset, n_bytes;
};

class Device {
 public:
  virtual ~Device() = default;
  // Device memory is zeroed. An error says for `what` the memory was.
  virtual Result<Buffer> allocate(size_t n_bytes, std::string_view what, Memory kind) = 0;
  Result<Buffer> allocate(size_t n_bytes, std::string_view what) { return allocate(n_bytes, what, Memory::device); }
  // Memory that no other workspace of the plan shares (plan_memory.h).
  virtual Result<Buffer> allocate_unshared(size_t n_bytes, std::string_view what) { return allocate(n_bytes, what); }
  // Complete on return; ordered after all work queued before.
  virtual Status write(const Buffer& to, size_t offset, std::span<const std::byte> from) = 0;
  virtual Status read(const Buffer& from, size_t offset, std::span<std::byte> to) = 0;
  // Queues copies between device buffers: ordered after all earlier and before all later work.
  virtual Status copy(std::span<const BufferCopy> copies) = 0;
  virtual Status wait_all() = 0;  // for everything queued before the call
  // Whether memory of this kind is part of the device's (DeviceInfo::memory_bytes), not only of the host's.
  virtual bool is_on_device(Memory kind) const { return kind == Memory::device; }
  // Memory with these contents, which kernels only read.
  virtual Result<Buffer> allocate_table(std::span<const std::byte> contents, std::string_view what) {
    ZINC_TRY(buffer, allocate(contents.size(), what));
    if (Status s = write(buffer, 0, contents); !s.ok()) return s.error();
    return std::move(buffer);
  }
};

}  // namespace zinc::gpu
