// Device memory of the caches. KV cache: one buffer of pages per layer (shader/kv.glsl); a page of a group is one page
// in each of the group's layers. Per slot: each recurrent layer's convolution inputs ([taps, channels]) and delta state
// ([heads, k_dim, v_dim]), and the last sampled token.
#pragma once

#include <optional>
#include <vector>

#include "backend/backend.h"
#include "backend/vulkan/device.h"
#include "backend/vulkan/params.h"

namespace zinc::vulkan {

class VulkanCache final : public CacheMemory {
 public:
  static Result<std::unique_ptr<VulkanCache>> allocate(std::span<const LayerCache> layers, const CacheSizes& sizes,
                                                       Device& device);
  ~VulkanCache() override;

  void copy_page(int group, PageId from, PageId to) override;
  void copy_state(int from_slot, int to_slot) override;
  size_t page_bytes(int group) const override { return groups_[static_cast<size_t>(group)].page_bytes; }
  size_t state_bytes() const override { return state_bytes_; }
  Status read_page(int group, PageId page, std::span<std::byte> out) override;
  Status write_page(int group, PageId page, std::span<const std::byte> in) override;
  Status read_state(int slot, std::span<std::byte> out) override;
  Status write_state(int slot, std::span<const std::byte> in) override;

  const std::optional<Error>& failed_copy() const { return failed_copy_; }  // the first failure; later steps return it
  KvFormat kv_format() const { return kv_format_; }
  int n_groups() const { return static_cast<int>(groups_.size()); }
  int n_pages(int group) const { return groups_[static_cast<size_t>(group)].n_pages; }
  int n_slots() const { return n_slots_; }
  int window(int group) const { return groups_[static_cast<size_t>(group)].window; }
  int max_visible_positions(int group) const;  // KV positions visible to one row, at most
  bool has_position(int position) const { return max_length_ == 0 || position < max_length_; }
  KvLayer kv_layer(int layer) const;
  Address conv_states(int layer) const;   // of slot 0
  Address delta_states(int layer) const;  // of slot 0
  Address last_sampled() const { return last_sampled_.address(); }
  const Buffer& pages(int layer) const { return storage_[static_cast<size_t>(layer)].pages; }
  const Buffer& states() const { return states_; }

 private:
  struct LayerStorage {
    int group = -1;
    size_t page_bytes = 0, head_bytes = 0, value_begin = 0, state_begin = 0;
    Buffer pages;
  };
  struct Group {
    size_t page_bytes = 0;
    int n_pages = 0, window = 0;
    std::vector<int> layers;
  };
  size_t page_index(int group, PageId page) const;
  void copy(const std::function<void(VkCommandBuffer)>& commands);

  Device* device_ = nullptr;
  std::vector<LayerCache> layers_;
  std::vector<LayerStorage> storage_;
  std::vector<Group> groups_;
  KvFormat kv_format_ = kKvF16;
  int n_slots_ = 0, max_length_ = 0;
  size_t state_bytes_ = 0;
  Buffer states_, last_sampled_;
  std::optional<Error> failed_copy_;
};

}  // namespace zinc::vulkan
