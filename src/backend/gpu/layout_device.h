// A device without memory: it hands out addresses and counts bytes, so that a graph can be lowered, and the memory of a
// plan be reckoned, without a GPU.
#pragma once

#include "backend/gpu/weights.h"

namespace zinc::gpu {

class LayoutDevice final : public Device {
 public:
  using Device::allocate;
  Result<Buffer> allocate(size_t n_bytes, std::string_view, Memory kind) override {
    constexpr size_t kAlign = 256;
    const Address address = next_;
    next_ += (n_bytes + kAlign - 1) / kAlign * kAlign;
    if (kind == Memory::device) device_bytes_ += n_bytes;
    return Buffer(nullptr, address, nullptr, n_bytes);
  }
  Status write(const Buffer&, size_t, std::span<const std::byte>) override { return ok_status(); }
  Status read(const Buffer&, size_t, std::span<std::byte>) override { return ok_status(); }
  Status copy(std::span<const BufferCopy>) override { return ok_status(); }
  Status wait_all() override { return ok_status(); }
  size_t device_bytes() const { return device_bytes_; }  // allocated so far

 private:
  Address next_ = Address{1} << 32;  // not 0, which means: none
  size_t device_bytes_ = 0;
};

class LayoutUploader final : public WeightUploader {
 public:
  explicit LayoutUploader(bool pads_last_segment) : pads_last_segment_(pads_last_segment) {}
  bool pads_last_segment() const override { return pads_last_segment_; }
  Status upload_matrix(const WeightRows&, const DeviceMatrix&, const BufferRange&) override { return ok_status(); }
  Status upload_vector(std::span<const float>, const BufferRange&) override { return ok_status(); }

 private:
  bool pads_last_segment_;
};

}  // namespace zinc::gpu
