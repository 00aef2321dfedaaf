// A device without memory: it hands out addresses, so that a graph can be lowered, and the memory of a plan counted,
// without taking any.
#pragma once

#include <array>

#include "backend/gpu/weights.h"

namespace zinc::gpu {

class LayoutDevice final : public Device {
 public:
  // The kinds of memory that are on the device, by Memory.
  explicit LayoutDevice(std::array<bool, kMemoryKinds> on_device = {true, false, false}) : on_device_(on_device) {}

  using Device::allocate;
  Result<Buffer> allocate(size_t n_bytes, std::string_view, Memory) override {
    constexpr size_t kAlign = 256;
    const Address address = next_;
    next_ += (n_bytes + kAlign - 1) / kAlign * kAlign;
    return Buffer(nullptr, address, nullptr, n_bytes);
  }
  Status write(const Buffer&, size_t, std::span<const std::byte>) override { return ok_status(); }
  Status read(const Buffer&, size_t, std::span<std::byte>) override { return ok_status(); }
  Status copy(std::span<const BufferCopy>) override { return ok_status(); }
  Status wait_all() override { return ok_status(); }
  bool is_on_device(Memory kind) const override { return on_device_[static_cast<size_t>(kind)]; }

 private:
  std::array<bool, kMemoryKinds> on_device_;
  Address next_ = Address{1} << 32;  // not 0, which means: none
};

class LayoutUploader final : public WeightUploader {
 public:
  explicit LayoutUploader(const KernelFormats& formats, size_t staging_bytes = 0)
      : formats_(formats), staging_bytes_(staging_bytes) {}
  KernelFormats formats() const override { return formats_; }
  size_t staging_bytes() const override { return staging_bytes_; }
  Status upload_matrix(const WeightRows&, const DeviceMatrix&, const BufferRange&) override { return ok_status(); }
  Status upload_vector(std::span<const float>, const BufferRange&) override { return ok_status(); }

 private:
  KernelFormats formats_;
  size_t staging_bytes_;
};

}  // namespace zinc::gpu
