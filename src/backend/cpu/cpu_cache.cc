#include "backend/cpu/cpu_cache.h"

#include <algorithm>

namespace zinc::cpu {
namespace {

constexpr size_t kSystemPage = 4096, kHugePage = size_t{2} << 20;

// Bytes between two strips. Long ones are put off against each other, so that they do not all come to the end of a huge
// page with the same page of theirs: the system clears each when it is first written. All gaps together are about one.
size_t gap_between(size_t n_strips, size_t strip_bytes) {
  if (strip_bytes < kHugePage) return 0;
  return std::max(kSystemPage, kHugePage / n_strips / kSystemPage * kSystemPage);
}

}  // namespace

Result<std::unique_ptr<CpuCache>> CpuCache::allocate(std::span<const LayerCache> layers, const CacheSizes& sizes,
                                                     const Kernels& kernels, ThreadPool& threads) {
  auto cache = std::make_unique<CpuCache>(threads);
  cache->layers_.assign(layers.begin(), layers.end());
  cache->places_.resize(layers.size());
  cache->layout_ = kernels.kv_layout(sizes.kv_format->name);
  if (cache->layout_ == nullptr) {
    return fail(ErrorCode::unsupported, "the cpu backend cannot keep keys and values as '{}'; it has f32, f16 and q8_0",
                sizes.kv_format->name);
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
      cache->places_[static_cast<size_t>(layer)] = {static_cast<int>(g), group.strips.size(), 0};
      for (int head = 0; head < kv.kv_heads; ++head) {
        const size_t strip_bytes = head_bytes * static_cast<size_t>(group.n_pages);
        group.strips.push_back({n_bytes, head_bytes});
        group.page_bytes += head_bytes;
        n_bytes += strip_bytes + gap_between(n_strips, strip_bytes);
      }
    }
    group.slab = AlignedBuffer::allocate(n_bytes);
    if (group.slab.size() < n_bytes) {
      return fail(ErrorCode::out_of_memory, "{} bytes for keys and values were refused", n_bytes);
    }
    cache->groups_.push_back(std::move(group));
  }
  for (size_t i = 0; i < layers.size(); ++i) {
    cache->places_[i].in_state = cache->state_floats_;
    cache->state_floats_ += static_cast<size_t>(layers[i].recurrent.conv_floats() + layers[i].recurrent.delta_floats());
  }
  cache->n_slots_ = sizes.n_slots;
  const size_t n_bytes = cache->state_bytes() * static_cast<size_t>(sizes.n_slots);
  cache->states_ = AlignedBuffer::allocate(n_bytes);
  if (cache->states_.size() < n_bytes) {
    return fail(ErrorCode::out_of_memory, "{} bytes for recurrent states were refused", n_bytes);
  }
  cache->last_sampled_.resize(static_cast<size_t>(sizes.n_slots), 0);
  return cache;
}

std::span<std::byte> CpuCache::part(int group, size_t strip, PageId page) const {
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
  const Place& place = places_[static_cast<size_t>(layer)];
  return part(place.group, place.first_strip + static_cast<size_t>(head), page).data();
}

float* CpuCache::conv_state(int layer, int slot) const {
  return reinterpret_cast<float*>(state(slot).data()) + places_[static_cast<size_t>(layer)].in_state;
}

float* CpuCache::delta_state(int layer, int slot) const {
  return conv_state(layer, slot) + layers_[static_cast<size_t>(layer)].recurrent.conv_floats();
}

// The system gives memory when it is first written, which takes as long as computing a few tokens for each page. Only
// written: what is read first is given twice, a page of zeros and then its own.
void CpuCache::make_ready(int group, PageId first, int n_pages) {
  threads_.parallel_for(groups_[static_cast<size_t>(group)].strips.size(), [&](size_t strip, size_t end) {
    for (; strip < end; ++strip) {
      const std::span<std::byte> begin = part(group, strip, first);
      const size_t n_bytes = begin.size() * static_cast<size_t>(n_pages);
      for (size_t at = 0; at < n_bytes; at += kSystemPage) *static_cast<volatile std::byte*>(begin.data() + at) = {};
    }
  });
}

void CpuCache::copy_page(int group, PageId from, PageId to) {
  for (size_t strip = 0; strip < groups_[static_cast<size_t>(group)].strips.size(); ++strip) {
    std::ranges::copy(part(group, strip, from), part(group, strip, to).begin());
  }
}

void CpuCache::copy_state(int from_slot, int to_slot) {
  std::ranges::copy(state(from_slot), state(to_slot).begin());
  last_sampled(to_slot) = last_sampled(from_slot);
}

Status CpuCache::read_page(int group, PageId page, std::span<std::byte> out) {
  ZINC_CHECK(out.size() == page_bytes(group));
  auto at = out.begin();
  for (size_t strip = 0; strip < groups_[static_cast<size_t>(group)].strips.size(); ++strip) {
    at = std::ranges::copy(part(group, strip, page), at).out;
  }
  return ok_status();
}

Status CpuCache::write_page(int group, PageId page, std::span<const std::byte> in) {
  ZINC_CHECK(in.size() == page_bytes(group));
  for (size_t strip = 0; strip < groups_[static_cast<size_t>(group)].strips.size(); ++strip) {
    const std::span<std::byte> to = part(group, strip, page);
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
