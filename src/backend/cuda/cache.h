// Caches on the GPU. One slab per page group, layer by layer, so that the memory one attention reads is contiguous. A
// page of a layer holds, per head, the keys as a panel of 32 positions and the values as rows
// (backend/simt/attention.cu). Each slot holds, per recurrent layer, the convolution inputs ([taps, channels], position
// p at p % taps) and the delta state ([heads, k_dim, v_dim]), and the last sampled token.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/device.h"
#include "backend/simt/params.h"

namespace zinc::cuda {

class CudaCache final : public CacheMemory {
 public:
  static Result<std::unique_ptr<CudaCache>> allocate(std::span<const LayerCache> layers, const CacheSizes& sizes,
                                                     Device& device);

  void copy_page(int group, PageId from, PageId to) override;
  void copy_state(int from_slot, int to_slot) override;
  size_t page_bytes(int group) const override { return groups_[static_cast<size_t>(group)].page_bytes; }
  size_t state_bytes() const override { return state_floats_ * sizeof(float); }
  Status read_page(int group, PageId page, std::span<std::byte> out) override;
  Status write_page(int group, PageId page, std::span<const std::byte> in) override;
  Status read_state(int slot, std::span<std::byte> out) override;
  Status write_state(int slot, std::span<const std::byte> in) override;

  const std::optional<Error>& failed_copy() const { return failed_copy_; }  // the first failure; later steps report it
  std::string_view kv_format() const { return kv_format_; }
  int n_groups() const { return static_cast<int>(groups_.size()); }
  int n_pages(int group) const { return groups_[static_cast<size_t>(group)].n_pages; }
  int n_slots() const { return n_slots_; }
  int window(int group) const { return groups_[static_cast<size_t>(group)].window; }
  int max_attended(int group) const;  // positions one row attends to, at most
  bool has_position(int position) const { return max_length_ == 0 || position < max_length_; }
  simt::KvLayer kv_layer(int layer) const;
  float* conv_states(int layer) const;   // of slot 0
  float* delta_states(int layer) const;  // likewise
  size_t slot_floats() const { return state_floats_; }
  int* last_sampled() const { return last_sampled_.as<int>(); }

 private:
  struct LayerOffsets {
    int group = -1;
    size_t slab_offset = 0;  // offset of its part of page 0
    size_t part_bytes = 0, head_bytes = 0, value_begin = 0, state_offset = 0;
  };
  struct Group {
    size_t page_bytes = 0;  // of all layers
    int n_pages = 0, window = 0;
    std::vector<int> layers;
    Buffer slab;
  };
  // Calls copy(address, offset in the page, n_bytes) for each layer's part of a page.
  Status for_parts(int group, PageId page, const std::function<Status(DevicePointer, size_t, size_t)>& copy) const;
  DevicePointer state(int slot) const;
  void record_failure(const Status& copied);

  Device* device_ = nullptr;
  std::vector<LayerCache> layers_;
  std::vector<LayerOffsets> offsets_;
  std::vector<Group> groups_;
  std::string_view kv_format_;
  int n_slots_ = 0, max_length_ = 0;
  size_t state_floats_ = 0;
  Buffer states_, last_sampled_;
  std::optional<Error> failed_copy_;
};

}  // namespace zinc::cuda
