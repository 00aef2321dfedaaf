#include "backend/cpu/cpu_cache.h"

#include <algorithm>

namespace zinc::cpu {
namespace {

constexpr size_t kSystemPage = 4096, kHugePage = size_t{2} << 20;

// Padding between two strips. Long strips are staggered so that they do not all cross a huge page boundary at the same
// KV page: the kernel zeroes a huge page on its first write. All paddings together are about one huge page.
size_t strip_padding(size_t n_strips, size_t strip_bytes) {
  if (strip_bytes < kHugePage) return 0;
  return std::max(kSystemPage, kHugePage / n_strips / kSystemPage * kSystemPage);
}

}  // namespace

Result<std::unique_ptr<CpuCache>> CpuCache::allocate(std::span<const LayerCache> layers, const CacheSizes& sizes,
                                                     const Kernels& kernels, ThreadPool& threads,
                                                     AllocateBuffer allocate_buffer) {
  auto cache = std::make_unique<CpuCache>(threads);
  cache->layers_.assign(layers.begin(), layers.end());
  cache->offsets_.resize(layers.size());
  cache->layout_ = kernels.kv_layout(sizes.kv_format->name);
  if (cache->layout_ == nullptr) {
    return fail(ErrorCode::unsupported, "the cpu backend does not support KV cache format '{}'; it supports {}",
                sizes.kv_format->name, kv_format_names(*find_backend("cpu").value()));
  }
  if (Status fits = check_kv_blocks(*sizes.kv_format, layers); !fits.ok()) return fits.error();
  const std::vector<PageGroup> groups = page_groups(layers);
  ZINC_CHECK(groups.size() == sizes.n_pages.size());
  for (size_t g = 0; g < groups.size(); ++g) {
    Group group;
    group.n_pages = sizes.n_pages[g];
    size_t n_strips = 0, n_bytes = 0;
    for (const int layer : groups[g].layers) {
      n_strips += static_cast<size_t>(layers[static_cast<size_t>(layer)].attention.kv_heads);
    }
    for (int layer : groups[g].layers) {
      const AttentionCache& kv = layers[static_cast<size_t>(layer)].attention;
      const size_t head_bytes = cache->layout_->key_bytes(kv.k_dim) + cache->layout_->value_bytes(kv.v_dim);
      cache->offsets_[static_cast<size_t>(layer)] = {static_cast<int>(g), group.strips.size(), 0};
      for (int head = 0; head < kv.kv_heads; ++head) {
        const size_t strip_bytes = head_bytes * static_cast<size_t>(group.n_pages);
        group.strips.push_back({n_bytes, head_bytes});
        group.page_bytes += head_bytes;
        n_bytes += strip_bytes + strip_padding(n_strips, strip_bytes);
      }
    }
    group.slab = allocate_buffer(n_bytes);
    if (group.slab.size() < n_bytes) {
      return fail(ErrorCode::out_of_memory, "out of memory: cannot allocate {} bytes for the KV cache", n_bytes);
    }
    cache->groups_.push_back(std::move(group));
  }
  for (size_t i = 0; i < layers.size(); ++i) {
    cache->offsets_[i].state_offset = cache->state_floats_;
    cache->state_floats_ += static_cast<size_t>(layers[i].recurrent.conv_floats() + layers[i].recurrent.delta_floats());
  }
  cache->n_slots_ = sizes.n_slots;
  const size_t n_bytes = cache->state_bytes() * static_cast<size_t>(sizes.n_slots);
  cache->states_ = allocate_buffer(n_bytes);
  if (cache->states_.size() < n_bytes) {
    return fail(ErrorCode::out_of_memory, "out of memory: cannot allocate {} bytes for recurrent states", n_bytes);
  }
  cache->last_sampled_.resize(static_cast<size_t>(sizes.n_slots), 0);
  return cache;
}

size_t CpuCache::device_bytes() const {
  size_t n = states_.size() + last_sampled_.capacity() * sizeof(TokenId);
  for (const Group& group : groups_) n += group.slab.size();
  return n;
}

std::span<std::byte> CpuCache::strip_page(int group, size_t strip, PageId page) const {
  const Group& g = groups_[static_cast<size_t>(group)];
  ZINC_CHECK(page >= 0 && page < g.n_pages);
  const Strip& s = g.strips[strip];
  return g.slab.bytes().subspan(s.begin + static_cast<size_t>(page) * s.head_bytes, s.head_bytes);
}

std::span<std::byte> CpuCache::state(int slot) const {
  ZINC_CHECK(slot >= 0 && slot < n_slots_);
  return states_.bytes().subspan(static_cast<size_t>(slot) * state_bytes(), state_bytes());
}

std::byte* CpuCache::keys(int layer, PageId page, int head) const {
  const LayerOffsets& layer_offsets = offsets_[static_cast<size_t>(layer)];
  return strip_page(layer_offsets.group, layer_offsets.first_strip + static_cast<size_t>(head), page).data();
}

float* CpuCache::conv_state(int layer, int slot) const {
  return reinterpret_cast<float*>(state(slot).data()) + offsets_[static_cast<size_t>(layer)].state_offset;
}

float* CpuCache::delta_state(int layer, int slot) const {
  return conv_state(layer, slot) + layers_[static_cast<size_t>(layer)].recurrent.conv_floats();
}

// The kernel allocates memory on the first write, which takes as long as computing a few tokens per page. Writes only:
// a read first would fault twice, once for the shared zero page and once for the write.
void CpuCache::prefault_pages(int group, PageId first, int n_pages) {
  threads_.parallel_for(groups_[static_cast<size_t>(group)].strips.size(), [&](size_t strip, size_t end) {
    for (; strip < end; ++strip) {
      const std::span<std::byte> begin = strip_page(group, strip, first);
      const size_t n_bytes = begin.size() * static_cast<size_t>(n_pages);
      for (size_t offset = 0; offset < n_bytes; offset += kSystemPage)
        *static_cast<volatile std::byte*>(begin.data() + offset) = {};
    }
  });
}

void CpuCache::copy_page(int group, PageId from, PageId to) {
  for (size_t strip = 0; strip < groups_[static_cast<size_t>(group)].strips.size(); ++strip) {
    std::ranges::copy(strip_page(group, strip, from), strip_page(group, strip, to).begin());
  }
}

void CpuCache::copy_state(int from_slot, int to_slot) {
  std::ranges::copy(state(from_slot), state(to_slot).begin());
  last_sampled(to_slot) = last_sampled(from_slot);
}

Status CpuCache::read_page(int group, PageId page, std::span<std::byte> out) {
  ZINC_CHECK(out.size() == page_bytes(group));
  auto out_it = out.begin();
  for (size_t strip = 0; strip < groups_[static_cast<size_t>(group)].strips.size(); ++strip) {
    out_it = std::ranges::copy(strip_page(group, strip, page), out_it).out;
  }
  return ok_status();
}

Status CpuCache::write_page(int group, PageId page, std::span<const std::byte> in) {
  ZINC_CHECK(in.size() == page_bytes(group));
  for (size_t strip = 0; strip < groups_[static_cast<size_t>(group)].strips.size(); ++strip) {
    const std::span<std::byte> to = strip_page(group, strip, page);
    std::ranges::copy(in.first(to.size()), to.begin());
    in = in.subspan(to.size());
  }
  return ok_status();
}

Status CpuCache::read_state(int slot, std::span<std::byte> out) {
  ZINC_CHECK(out.size() == state_bytes());
  std::ranges::copy(state(slot), out.begin());
  return ok_status();
}

Status CpuCache::write_state(int slot, std::span<const std::byte> in) {
  ZINC_CHECK(in.size() == state_bytes());
  std::ranges::copy(in, state(slot).begin());
  return ok_status();
}

}  // namespace zinc::cpu
