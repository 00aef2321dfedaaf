#include "backend/cuda/cache.h"

#include <algorithm>

namespace zinc::cuda {
namespace {

size_t padded(int n) { return (static_cast<size_t>(n) + 31) / 32 * 32; }

// Bytes of 32 positions of n numbers each, in whole pieces.
size_t panel_bytes(const Format& format, int n) { return row_bytes(format, padded(n)) * simt::kPagePositions; }

// One more than the past: a token's own input has a place that nobody reads meanwhile.
size_t conv_floats(const RecurrentCache& r) {
  return static_cast<size_t>(r.conv_channels) * static_cast<size_t>(r.conv_taps);
}

Status check_format(const CacheSizes& sizes, std::span<const LayerCache> layers) {
  const std::string_view name = sizes.kv_format ? sizes.kv_format->name : "(none)";
  if (name != "f32" && name != "f16" && name != "q8_0" && name != "fp8") {
    return fail(ErrorCode::unsupported,
                "the cuda backend cannot keep keys and values as '{}'; it has f32, f16, q8_0 and fp8", name);
  }
  return check_kv_blocks(*sizes.kv_format, layers);
}

}  // namespace

Result<std::unique_ptr<CudaCache>> CudaCache::allocate(std::span<const LayerCache> layers, const CacheSizes& sizes,
                                                       Device& device) {
  if (Status fits = check_format(sizes, layers); !fits.ok()) return fits.error();
  if (Status s = device.make_current(); !s.ok()) return s.error();
  auto cache = std::make_unique<CudaCache>();
  cache->device_ = &device;
  cache->layers_.assign(layers.begin(), layers.end());
  cache->places_.resize(layers.size());
  cache->kv_format_ = sizes.kv_format->name;
  const std::vector<PageGroup> groups = page_groups(layers);
  ZINC_CHECK(groups.size() == sizes.n_pages.size());
  if (groups.size() > simt::kMaxGroups) {
    return fail(ErrorCode::unsupported, "the cuda backend keeps up to {} kinds of attention windows; this model has {}",
                simt::kMaxGroups, groups.size());
  }
  for (size_t g = 0; g < groups.size(); ++g) {
    Group group;
    group.window = groups[g].window;
    group.n_pages = sizes.n_pages[g];
    group.layers = groups[g].layers;
    for (int layer : group.layers) {
      const AttentionCache& kv = layers[static_cast<size_t>(layer)].attention;
      Place& place = cache->places_[static_cast<size_t>(layer)];
      place.group = static_cast<int>(g);
      place.in_slab = group.page_bytes * static_cast<size_t>(group.n_pages);
      place.value_begin = panel_bytes(*sizes.kv_format, kv.k_dim);
      place.head_bytes = place.value_begin + panel_bytes(*sizes.kv_format, kv.v_dim);
      place.part_bytes = place.head_bytes * static_cast<size_t>(kv.kv_heads);
      group.page_bytes += place.part_bytes;
    }
    ZINC_TRY(slab, device.allocate(group.page_bytes * static_cast<size_t>(group.n_pages), "keys and values"));
    group.slab = std::move(slab);
    cache->groups_.push_back(std::move(group));
  }
  for (size_t i = 0; i < layers.size(); ++i) {
    cache->places_[i].in_state = cache->state_floats_;
    cache->state_floats_ += conv_floats(layers[i].recurrent) + static_cast<size_t>(layers[i].recurrent.delta_floats());
  }
  cache->n_slots_ = sizes.n_slots;
  cache->max_length_ = sizes.max_length;
  const size_t n_slots = static_cast<size_t>(sizes.n_slots);
  ZINC_TRY(states, device.allocate(cache->state_bytes() * n_slots, "recurrent states"));
  ZINC_TRY(sampled, device.allocate(n_slots * sizeof(int), "sampled tokens"));
  cache->states_ = std::move(states);
  cache->last_sampled_ = std::move(sampled);
  return cache;
}

Status CudaCache::for_parts(int group, PageId id,
                            const std::function<Status(DevicePointer, size_t, size_t)>& copy) const {
  const Group& g = groups_[static_cast<size_t>(group)];
  ZINC_CHECK(id >= 0 && id < g.n_pages);
  if (Status s = device_->make_current(); !s.ok()) return s;
  size_t in_page = 0;
  for (int layer : g.layers) {
    const Place& place = places_[static_cast<size_t>(layer)];
    const DevicePointer at = g.slab.address() + place.in_slab + static_cast<size_t>(id) * place.part_bytes;
    if (Status s = copy(at, in_page, place.part_bytes); !s.ok()) return s;
    in_page += place.part_bytes;
  }
  return ok_status();
}

DevicePointer CudaCache::state(int slot) const {
  ZINC_CHECK(slot >= 0 && slot < n_slots_);
  return states_.address() + static_cast<size_t>(slot) * state_bytes();
}

int CudaCache::n_seen(int group) const {
  int n = n_pages(group) * kPageTokens;
  if (max_length_ > 0) n = std::min(n, max_length_);
  return window(group) > 0 ? std::min(n, window(group)) : n;
}

simt::KvLayer CudaCache::kv_layer(int layer) const {
  const Place& place = places_[static_cast<size_t>(layer)];
  const AttentionCache& kv = layers_[static_cast<size_t>(layer)].attention;
  const Group& group = groups_[static_cast<size_t>(place.group)];
  return {.pages = group.slab.as<unsigned char>() + place.in_slab,
          .page_bytes = static_cast<long long>(place.part_bytes),
          .head_bytes = static_cast<int>(place.head_bytes),
          .value_begin = static_cast<int>(place.value_begin),
          .kv_heads = kv.kv_heads,
          .k_dim = kv.k_dim,
          .v_dim = kv.v_dim,
          .group = place.group};
}

float* CudaCache::conv_states(int layer) const {
  return states_.as<float>() + places_[static_cast<size_t>(layer)].in_state;
}
float* CudaCache::delta_states(int layer) const {
  return conv_states(layer) + conv_floats(layers_[static_cast<size_t>(layer)].recurrent);
}

void CudaCache::keep_failure(const Status& copied) {
  if (!copied.ok() && !failed_copy_) failed_copy_ = copied.error();
}

void CudaCache::copy_page(int group, PageId from, PageId to) {
  ZINC_CHECK(to >= 0 && to < n_pages(group));
  keep_failure(for_parts(group, from, [&](DevicePointer at, size_t, size_t n_bytes) {
    const DevicePointer page_0 = at - static_cast<size_t>(from) * n_bytes;
    return device_->copy_within(page_0 + static_cast<size_t>(to) * n_bytes, at, n_bytes);
  }));
}

void CudaCache::copy_state(int from_slot, int to_slot) {
  keep_failure(device_->make_current());
  if (state_bytes() > 0) keep_failure(device_->copy_within(state(to_slot), state(from_slot), state_bytes()));
  const auto sampled = [&](int slot) { return last_sampled_.address() + static_cast<size_t>(slot) * sizeof(int); };
  keep_failure(device_->copy_within(sampled(to_slot), sampled(from_slot), sizeof(int)));
}

Status CudaCache::read_page(int group, PageId id, std::span<std::byte> out) {
  ZINC_CHECK(out.size() == page_bytes(group));
  const Status s = for_parts(group, id, [&](DevicePointer at, size_t begin, size_t n_bytes) {
    return device_->copy_out(out.data() + begin, at, n_bytes);
  });
  return s.ok() ? device_->wait() : s;
}

Status CudaCache::write_page(int group, PageId id, std::span<const std::byte> in) {
  ZINC_CHECK(in.size() == page_bytes(group));
  const Status s = for_parts(group, id, [&](DevicePointer at, size_t begin, size_t n_bytes) {
    return device_->copy_in(at, in.data() + begin, n_bytes);
  });
  return s.ok() ? device_->wait() : s;
}

Status CudaCache::read_state(int slot, std::span<std::byte> out) {
  ZINC_CHECK(out.size() == state_bytes());
  if (out.empty()) return ok_status();
  if (Status s = device_->make_current(); !s.ok()) return s;
  if (Status s = device_->copy_out(out.data(), state(slot), out.size()); !s.ok()) return s;
  return device_->wait();
}

Status CudaCache::write_state(int slot, std::span<const std::byte> in) {
  ZINC_CHECK(in.size() == state_bytes());
  if (in.empty()) return ok_status();
  if (Status s = device_->make_current(); !s.ok()) return s;
  if (Status s = device_->copy_in(state(slot), in.data(), in.size()); !s.ok()) return s;
  return device_->wait();
}

}  // namespace zinc::cuda
