// Caches of the reference backend: plain host memory. A page of a layer holds kPageTokens positions, each kv_heads key
// rows then kv_heads value rows in the KV format; a slot holds each recurrent layer's convolution inputs (oldest first,
// [taps-1, channels]) and delta state ([heads, k_dim, v_dim]).
#pragma once

#include <span>
#include <vector>

#include "backend/backend.h"
#include "base/aligned_buffer.h"

namespace zinc::reference {

class ReferenceCache final : public CacheMemory {
 public:
  static Result<std::unique_ptr<ReferenceCache>> allocate(std::span<const LayerCache> layers, const CacheSizes& sizes,
                                                          AllocateBuffer allocate_buffer);
  size_t device_bytes() const override;

  void copy_page(int group, PageId from, PageId to) override;
  void copy_state(int from_slot, int to_slot) override;
  size_t page_bytes(int group) const override;
  size_t state_bytes() const override { return state_floats_ * sizeof(float); }
  Status read_page(int group, PageId page, std::span<std::byte> out) override;
  Status write_page(int group, PageId page, std::span<const std::byte> in) override;
  Status read_state(int slot, std::span<std::byte> out) override;
  Status write_state(int slot, std::span<const std::byte> in) override;

  const Format& kv_format() const { return *sizes_.kv_format; }
  const LayerCache& layer(int layer) const { return layers_[static_cast<size_t>(layer)]; }
  int group_of(int layer) const { return offsets_[static_cast<size_t>(layer)].group; }

  // One head's key or value row at `offset` (0 .. kPageTokens-1) of a page. REQUIRES: the page belongs to the group.
  std::span<std::byte> key_row(int layer, PageId page, int offset, int head);
  std::span<std::byte> value_row(int layer, PageId page, int offset, int head);
  std::span<float> conv_state(int layer, int slot);
  std::span<float> delta_state(int layer, int slot);
  TokenId& last_sampled(int slot) { return last_sampled_[static_cast<size_t>(slot)]; }

 private:
  struct LayerOffsets {       // offsets of a layer's part
    int group = -1;           // page group; -1: no attention
    size_t page_offset = 0;   // bytes from the start of a page
    size_t state_offset = 0;  // floats from the start of a slot
  };
  struct Group {
    size_t page_bytes = 0;
    int n_pages = 0;
    AlignedBuffer bytes;
  };
  ReferenceCache(std::span<const LayerCache> layers, const CacheSizes& sizes, AllocateBuffer allocate_buffer);
  std::span<std::byte> page(int group, PageId page);
  std::span<float> state(int slot);

  std::vector<LayerCache> layers_;
  CacheSizes sizes_;
  std::vector<LayerOffsets> offsets_;
  std::vector<Group> groups_;
  size_t state_floats_ = 0;
  AlignedBuffer states_;
  std::vector<TokenId> last_sampled_;
};

}  // namespace zinc::reference
