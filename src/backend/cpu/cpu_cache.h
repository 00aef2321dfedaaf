// Caches of the CPU backend. Each page group has one slab with a strip per head of each layer. A strip holds the head's
// part of every page: keys, then values, in the KV layout (backend/cpu/kernels.h). So consecutive pages of a head are
// one stream from memory. Each slot holds, per recurrent layer, the convolution inputs ([taps-1][channels], oldest
// first) and the delta state ([heads][k_dim][v_dim]).
#pragma once

#include <vector>

#include "backend/backend.h"
#include "backend/cpu/kernels.h"
#include "base/aligned_buffer.h"
#include "base/thread_pool.h"

namespace zinc::cpu {

class CpuCache final : public CacheMemory {
 public:
  static Result<std::unique_ptr<CpuCache>> allocate(std::span<const LayerCache> layers, const CacheSizes& sizes,
                                                    const Kernels& kernels, ThreadPool& threads,
                                                    AllocateBuffer allocate_buffer);
  explicit CpuCache(ThreadPool& threads) : threads_(threads) {}

  size_t device_bytes() const override;
  void copy_page(int group, PageId from, PageId to) override;
  void copy_state(int from_slot, int to_slot) override;
  void prefault_pages(int group, PageId first, int n_pages) override;
  size_t page_bytes(int group) const override { return groups_[static_cast<size_t>(group)].page_bytes; }
  size_t state_bytes() const override { return state_floats_ * sizeof(float); }
  Status read_page(int group, PageId page, std::span<std::byte> out) override;
  Status write_page(int group, PageId page, std::span<const std::byte> in) override;
  Status read_state(int slot, std::span<std::byte> out) override;
  Status write_state(int slot, std::span<const std::byte> in) override;

  const KvLayout& layout() const { return *layout_; }
  const LayerCache& layer(int layer) const { return layers_[static_cast<size_t>(layer)]; }
  int group_of(int layer) const { return offsets_[static_cast<size_t>(layer)].group; }
  int n_pages(int group) const { return groups_[static_cast<size_t>(group)].n_pages; }
  std::byte* keys(int layer, PageId page, int head) const;  // REQUIRES: the page belongs to the layer's group
  float* conv_state(int layer, int slot) const;
  float* delta_state(int layer, int slot) const;
  TokenId& last_sampled(int slot) { return last_sampled_[static_cast<size_t>(slot)]; }

 private:
  struct LayerOffsets {
    int group = -1;
    size_t first_strip = 0;   // the strips of its heads are consecutive
    size_t state_offset = 0;  // floats
  };
  struct Strip {  // one head of one layer: its part of page 0, 1, 2, ...
    size_t begin, head_bytes;
  };
  struct Group {
    size_t page_bytes = 0;
    int n_pages = 0;
    std::vector<Strip> strips;
    AlignedBuffer slab;
  };
  std::span<std::byte> strip_page(int group, size_t strip, PageId page) const;
  std::span<std::byte> state(int slot) const;

  ThreadPool& threads_;
  std::vector<LayerCache> layers_;
  std::vector<LayerOffsets> offsets_;
  std::vector<Group> groups_;
  const KvLayout* layout_ = nullptr;
  int n_slots_ = 0;
  size_t state_floats_ = 0;
  AlignedBuffer states_;
  std::vector<TokenId> last_sampled_;
};

}  // namespace zinc::cpu
