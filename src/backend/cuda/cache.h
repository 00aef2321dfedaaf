// Caches on the GPU. Per page group one slab: each layer's part of all pages, one layer after the other, so that what
// an attention reads lies together. Of a page that is each head's keys as a panel of 32 positions and its values as
// rows (backend/simt/attention.cu). Per slot each recurrent layer's convolution inputs ([taps, channels], the input of
// position p at p % taps) and delta state ([heads, k_dim, v_dim]), and the token sampled last.
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

  const std::optional<Error>& failed_copy() const { return failed_copy_; }  // the first; steps fail with it
  std::string_view kv_format() const { return kv_format_; }
  int n_groups() const { return static_cast<int>(groups_.size()); }
  int n_pages(int group) const { return groups_[static_cast<size_t>(group)].n_pages; }
  int n_slots() const { return n_slots_; }
  int window(int group) const { return groups_[static_cast<size_t>(group)].window; }
  int n_seen(int group) const;  // positions that one row sees, at most
  bool has_position(int position) const { return max_length_ == 0 || position < max_length_; }
  simt::KvLayer kv_layer(int layer) const;
  float* conv_states(int layer) const;   // of slot 0
  float* delta_states(int layer) const;  // likewise
  size_t slot_floats() const { return state_floats_; }
  int* last_sampled() const { return last_sampled_.as<int>(); }

 private:
  struct Place {
    int group = -1;
    size_t in_slab = 0;  // where its part of page 0 begins
    size_t part_bytes = 0, head_bytes = 0, value_begin = 0, in_state = 0;
  };
  struct Group {
    size_t page_bytes = 0;  // of all layers
    int n_pages = 0, window = 0;
    std::vector<int> layers;
    Buffer slab;
  };
  // Has `copy` done for each layer's part of a page: where it lies, where in a page's bytes, how many they are.
  Status for_parts(int group, PageId page, const std::function<Status(DevicePointer, size_t, size_t)>& copy) const;
  DevicePointer state(int slot) const;
  void keep_failure(const Status& copied);

  Device* device_ = nullptr;
  std::vector<LayerCache> layers_;
  std::vector<Place> places_;
  std::vector<Group> groups_;
  std::string_view kv_format_;
  int n_slots_ = 0, max_length_ = 0;
  size_t state_floats_ = 0;
  Buffer states_, last_sampled_;
  std::optional<Error> failed_copy_;
};

}  // namespace zinc::cuda
