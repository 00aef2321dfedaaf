#include "backend/cuda/cache.h"

#include <algorithm>

namespace zinc::cuda {
namespace {

size_t padded(int n) { return (static_cast<size_t>(n) + 31) / 32 * 32; }

// Bytes of 32 positions of n elements each, padded to quant blocks of 32.
size_t panel_bytes(const Format& format, int n) { return row_bytes(format, padded(n)) * simt::kPageTokens; }

// One more than the history: the current input has an entry that no other thread reads.
size_t conv_floats(const RecurrentCache& r) {
  return static_cast<size_t>(r.conv_channels) * static_cast<size_t>(r.conv_taps);
}

Status check_format(const CacheSizes& sizes, std::span<const LayerCache> layers) {
  const std::string_view name = sizes.kv_format ? sizes.kv_format->name : "(none)";
  if (name != "f32" && name != "f16" && name != "q8_0" && name != "fp8") {
    return fail(ErrorCode::unsupported,
                "the cuda backend does not support KV cache format '{}'; it supports f32, f16, q8_0 and fp8", name);
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
  cache->offsets_.resize(layers.size());
  cache->kv_format_ = sizes.kv_format->name;
  const std::vector<PageGroup> groups = page_groups(layers);
  ZINC_CHECK(groups.size() == sizes.n_pages.size());
  if (groups.size() > simt::kMaxPageGroups) {
    return fail(ErrorCode::unsupported,
                "the cuda backend supports up to {} different attention windows; this model has {}",
                simt::kMaxPageGroups, groups.size());
  }
  for (size_t g = 0; g < groups.size(); ++g) {
    Group group;
    group.window = groups[g].window;
    group.n_pages = sizes.n_pages[g];
    group.layers = groups[g].layers;
    for (int layer : group.layers) {
      const AttentionCache& kv = layers[static_cast<size_t>(layer)].attention;
      LayerOffsets& layer_offsets = cache->offsets_[static_cast<size_t>(layer)];
      layer_offsets.group = static_cast<int>(g);
      layer_offsets.slab_offset = group.page_bytes * static_cast<size_t>(group.n_pages);
      layer_offsets.value_begin = panel_bytes(*sizes.kv_format, kv.k_dim);
      layer_offsets.head_bytes = layer_offsets.value_begin + panel_bytes(*sizes.kv_format, kv.v_dim);
      layer_offsets.part_bytes = layer_offsets.head_bytes * static_cast<size_t>(kv.kv_heads);
      group.page_bytes += layer_offsets.part_bytes;
    }
    ZINC_TRY(slab, device.allocate(group.page_bytes * static_cast<size_t>(group.n_pages), "the KV cache"));
    group.slab = std::move(slab);
    cache->groups_.push_back(std::move(group));
  }
  for (size_t i = 0; i < layers.size(); ++i) {
    cache->offsets_[i].state_offset = cache->state_floats_;
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
    const LayerOffsets& layer_offsets = offsets_[static_cast<size_t>(layer)];
    const DevicePointer ptr =
        g.slab.address() + layer_offsets.slab_offset + static_cast<size_t>(id) * layer_offsets.part_bytes;
    if (Status s = copy(ptr, in_page, layer_offsets.part_bytes); !s.ok()) return s;
    in_page += layer_offsets.part_bytes;
  }
  return ok_status();
}

DevicePointer CudaCache::state(int slot) const {
  ZINC_CHECK(slot >= 0 && slot < n_slots_);
  return states_.address() + static_cast<size_t>(slot) * state_bytes();
}

int CudaCache::max_attended(int group) const {
  int n = n_pages(group) * kPageTokens;
  if (max_length_ > 0) n = std::min(n, max_length_);
  return window(group) > 0 ? std::min(n, window(group)) : n;
}

simt::KvLayer CudaCache::kv_layer(int layer) const {
  const LayerOffsets& layer_offsets = offsets_[static_cast<size_t>(layer)];
  const AttentionCache& kv = layers_[static_cast<size_t>(layer)].attention;
  const Group& group = groups_[static_cast<size_t>(layer_offsets.group)];
  return {.pages = group.slab.as<unsigned char>() + layer_offsets.slab_offset,
          .page_bytes = static_cast<long long>(layer_offsets.part_bytes),
          .head_bytes = static_cast<int>(layer_offsets.head_bytes),
          .value_begin = static_cast<int>(layer_offsets.value_begin),
          .kv_heads = kv.kv_heads,
          .k_dim = kv.k_dim,
          .v_dim = kv.v_dim,
          .group = layer_offsets.group};
}

float* CudaCache::conv_states(int layer) const {
  return states_.as<float>() + offsets_[static_cast<size_t>(layer)].state_offset;
}
float* CudaCache::delta_states(int layer) const {
  return conv_states(layer) + conv_floats(layers_[static_cast<size_t>(layer)].recurrent);
}

void CudaCache::record_failure(const Status& copied) {
  if (!copied.ok() && !failed_copy_) failed_copy_ = copied.error();
}

void CudaCache::copy_page(int group, PageId from, PageId to) {
  ZINC_CHECK(to >= 0 && to < n_pages(group));
  record_failure(for_parts(group, from, [&](DevicePointer ptr, size_t, size_t n_bytes) {
    const DevicePointer page_0 = ptr - static_cast<size_t>(from) * n_bytes;
    return device_->copy_d2d(page_0 + static_cast<size_t>(to) * n_bytes, ptr, n_bytes);
  }));
}

void CudaCache::copy_state(int from_slot, int to_slot) {
  record_failure(device_->make_current());
  if (state_bytes() > 0) record_failure(device_->copy_d2d(state(to_slot), state(from_slot), state_bytes()));
  const auto sampled = [&](int slot) { return last_sampled_.address() + static_cast<size_t>(slot) * sizeof(int); };
  record_failure(device_->copy_d2d(sampled(to_slot), sampled(from_slot), sizeof(int)));
}

Status CudaCache::read_page(int group, PageId id, std::span<std::byte> out) {
  ZINC_CHECK(out.size() == page_bytes(group));
  const Status s = for_parts(group, id, [&](DevicePointer ptr, size_t begin, size_t n_bytes) {
    return device_->copy_d2h(out.data() + begin, ptr, n_bytes);
  });
  return s.ok() ? device_->wait() : s;
}

Status CudaCache::write_page(int group, PageId id, std::span<const std::byte> in) {
  ZINC_CHECK(in.size() == page_bytes(group));
  const Status s = for_parts(group, id, [&](DevicePointer ptr, size_t begin, size_t n_bytes) {
    return device_->copy_h2d(ptr, in.data() + begin, n_bytes);
  });
  return s.ok() ? device_->wait() : s;
}

Status CudaCache::read_state(int slot, std::span<std::byte> out) {
  ZINC_CHECK(out.size() == state_bytes());
  if (out.empty()) return ok_status();
  if (Status s = device_->make_current(); !s.ok()) return s;
  if (Status s = device_->copy_d2h(out.data(), state(slot), out.size()); !s.ok()) return s;
  return device_->wait();
}

Status CudaCache::write_state(int slot, std::span<const std::byte> in) {
  ZINC_CHECK(in.size() == state_bytes());
  if (in.empty()) return ok_status();
  if (Status s = device_->make_current(); !s.ok()) return s;
  if (Status s = device_->copy_h2d(state(slot), in.data(), in.size()); !s.ok()) return s;
  return device_->wait();
}

}  // namespace zinc::cuda
