// Caches in GPU memory. KV cache: one buffer of pages per layer; a page of a group is one page in each of the group's
// layers. A page holds, per head, the keys as a panel of 32 positions and the values as rows. Recurrent states: one
// buffer of slots per layer; a slot holds the convolution's inputs ([taps, channels], position p at p % taps) and the
// delta state
// ([heads, k_dim, v_dim]). So only the cache of one layer has to fit the driver's largest allocation. Per slot also the
// last sampled token.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "backend/gpu/device.h"
#include "backend/gpu/kernel_formats.h"
#include "backend/gpu/params/kv_layer.h"
#include "backend/gpu/params/limits.h"

namespace zinc::gpu {

using namespace kernel;
using zinc::kPageTokens;
static_assert(kPageTokens == kernel::kPageTokens);

class Cache final : public CacheMemory {
 public:
  static Result<std::unique_ptr<Cache>> allocate(std::span<const LayerCache> layers, const CacheSizes& sizes,
                                                 Device& device, const KernelFormats& formats);
  ~Cache() override;

  size_t device_bytes() const override { return device_bytes_; }
  void copy_page(int group, PageId from, PageId to) override;
  void copy_state(int from_slot, int to_slot) override;
  size_t page_bytes(int group) const override { return groups_[static_cast<size_t>(group)].page_bytes; }
  size_t state_bytes() const override { return state_bytes_; }
  Status read_page(int group, PageId page, std::span<std::byte> out) override;
  Status write_page(int group, PageId page, std::span<const std::byte> in) override;
  Status read_state(int slot, std::span<std::byte> out) override;
  Status write_state(int slot, std::span<const std::byte> in) override;

  const std::optional<Error>& failed_copy() const { return failed_copy_; }  // the first failure; later steps return it
  const KvFormat& kv_format() const { return *kv_format_; }
  int n_groups() const { return static_cast<int>(groups_.size()); }
  int n_pages(int group) const { return groups_[static_cast<size_t>(group)].n_pages; }
  int window(int group) const { return groups_[static_cast<size_t>(group)].window; }
  int max_visible_positions(int group) const;  // KV positions visible to one row, at most
  int max_chunks(int group) const;             // KV chunks of one row, at most
  int min_kv_heads(int group) const;           // of the group's layers
  bool has_position(int position) const { return max_length_ == 0 || position < max_length_; }
  KvLayer kv_layer(int layer) const;
  const Buffer& pages(int layer) const { return storage_[static_cast<size_t>(layer)].pages; }
  const Buffer& states(int layer) const { return storage_[static_cast<size_t>(layer)].states; }
  size_t slot_bytes(int layer) const {
    return storage_[static_cast<size_t>(layer)].slot_bytes;
  }                                                                         // of one layer's state
  Address conv_states(int layer) const { return states(layer).address(); }  // of slot 0
  Address delta_states(int layer) const;                                    // of slot 0
  Address last_sampled() const { return last_sampled_.address(); }

 private:
  struct LayerStorage {
    int group = -1;
    size_t page_bytes = 0, head_bytes = 0, value_begin = 0, slot_bytes = 0;
    Buffer pages, states;
  };
  struct Group {
    size_t page_bytes = 0;  // of all layers
    int n_pages = 0, window = 0;
    std::vector<int> layers;
  };
  Status allocate_pages(const CacheSizes& sizes);
  Status allocate_states(const CacheSizes& sizes);
  size_t page_index(int group, PageId page) const;
  size_t slot_index(int slot) const;
  void copy(std::span<const BufferCopy> copies);

  Device* device_ = nullptr;
  std::vector<LayerCache> layers_;
  std::vector<LayerStorage> storage_;  // per layer
  std::vector<Group> groups_;
  const KvFormat* kv_format_ = nullptr;
  int n_slots_ = 0, max_length_ = 0;
  size_t state_bytes_ = 0, device_bytes_ = 0;
  Buffer last_sampled_;
  std::optional<Error> failed_copy_;
};

}  // namespace zinc::gpu
