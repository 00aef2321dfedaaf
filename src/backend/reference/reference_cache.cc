#include "backend/reference/reference_cache.h"

#include <algorithm>

namespace zinc::reference {

Result<std::unique_ptr<ReferenceCache>> ReferenceCache::allocate(std::span<const LayerCache> layers,
                                                                 const CacheSizes& sizes,
                                                                 AllocateBuffer allocate_buffer) {
  std::unique_ptr<ReferenceCache> cache(new ReferenceCache(layers, sizes, allocate_buffer));
  size_t n_bytes = cache->state_bytes() * static_cast<size_t>(sizes.n_slots);
  bool is_allocated = cache->states_.size() == n_bytes;
  for (const Group& group : cache->groups_) {
    const size_t n = group.page_bytes * static_cast<size_t>(group.n_pages);
    is_allocated = is_allocated && group.bytes.size() == n;
    n_bytes += n;
  }
  if (is_allocated) return cache;
  return fail(ErrorCode::out_of_memory, "out of memory: cannot allocate {} bytes for the KV cache", n_bytes);
}

ReferenceCache::ReferenceCache(std::span<const LayerCache> layers, const CacheSizes& sizes,
                               AllocateBuffer allocate_buffer)
    : layers_(layers.begin(), layers.end()), sizes_(sizes), offsets_(layers.size()) {
  const std::vector<PageGroup> groups = page_groups(layers_);
  ZINC_CHECK(groups.size() == sizes_.n_pages.size());
  for (size_t g = 0; g < groups.size(); ++g) {
    Group group;
    for (int layer : groups[g].layers) {
      const PageGroup alone{groups[g].window, {layer}};
      offsets_[static_cast<size_t>(layer)] = {static_cast<int>(g), group.page_bytes, 0};
      group.page_bytes += zinc::page_bytes(alone, layers_, kv_format());
    }
    group.n_pages = sizes_.n_pages[g];
    group.bytes = allocate_buffer(group.page_bytes * static_cast<size_t>(group.n_pages));
    groups_.push_back(std::move(group));
  }
  for (size_t i = 0; i < layers_.size(); ++i) {
    offsets_[i].state_offset = state_floats_;
    const RecurrentCache& recurrent = layers_[i].recurrent;
    state_floats_ += static_cast<size_t>(recurrent.conv_floats() + recurrent.delta_floats());
  }
  states_ = allocate_buffer(state_bytes() * static_cast<size_t>(sizes_.n_slots));
  last_sampled_.resize(static_cast<size_t>(sizes_.n_slots), 0);
}

size_t ReferenceCache::device_bytes() const {
  size_t n = states_.size() + last_sampled_.capacity() * sizeof(TokenId);
  for (const Group& group : groups_) n += group.bytes.size();
  return n;
}

std::span<std::byte> ReferenceCache::page(int group, PageId page) {
  Group& g = groups_[static_cast<size_t>(group)];
  ZINC_CHECK(page >= 0 && page < g.n_pages);
  return g.bytes.bytes().subspan(static_cast<size_t>(page) * g.page_bytes, g.page_bytes);
}

std::span<float> ReferenceCache::state(int slot) {
  ZINC_CHECK(slot >= 0 && slot < sizes_.n_slots);
  return {states_.as<float>() + static_cast<size_t>(slot) * state_floats_, state_floats_};
}

std::span<std::byte> ReferenceCache::key_row(int layer, PageId page_id, int offset, int head) {
  const AttentionCache& kv = layers_[static_cast<size_t>(layer)].attention;
  const LayerOffsets& at_layer = offsets_[static_cast<size_t>(layer)];
  const size_t k_bytes = row_bytes(kv_format(), static_cast<size_t>(kv.k_dim));
  const size_t v_bytes = row_bytes(kv_format(), static_cast<size_t>(kv.v_dim));
  const size_t position_bytes = (k_bytes + v_bytes) * static_cast<size_t>(kv.kv_heads);
  const size_t at =
      at_layer.page_offset + static_cast<size_t>(offset) * position_bytes + static_cast<size_t>(head) * k_bytes;
  return page(at_layer.group, page_id).subspan(at, k_bytes);
}

std::span<std::byte> ReferenceCache::value_row(int layer, PageId page_id, int offset, int head) {
  const AttentionCache& kv = layers_[static_cast<size_t>(layer)].attention;
  const LayerOffsets& at_layer = offsets_[static_cast<size_t>(layer)];
  const size_t n_heads = static_cast<size_t>(kv.kv_heads);
  const size_t k_bytes = row_bytes(kv_format(), static_cast<size_t>(kv.k_dim));
  const size_t v_bytes = row_bytes(kv_format(), static_cast<size_t>(kv.v_dim));
  const size_t at = at_layer.page_offset + static_cast<size_t>(offset) * (k_bytes + v_bytes) * n_heads +
                    n_heads * k_bytes + static_cast<size_t>(head) * v_bytes;
  return page(at_layer.group, page_id).subspan(at, v_bytes);
}

std::span<float> ReferenceCache::conv_state(int layer, int slot) {
  const LayerOffsets& at_layer = offsets_[static_cast<size_t>(layer)];
  const RecurrentCache& recurrent = layers_[static_cast<size_t>(layer)].recurrent;
  return state(slot).subspan(at_layer.state_offset, static_cast<size_t>(recurrent.conv_floats()));
}

std::span<float> ReferenceCache::delta_state(int layer, int slot) {
  const LayerOffsets& at_layer = offsets_[static_cast<size_t>(layer)];
  const RecurrentCache& recurrent = layers_[static_cast<size_t>(layer)].recurrent;
  return state(slot).subspan(at_layer.state_offset + static_cast<size_t>(recurrent.conv_floats()),
                             static_cast<size_t>(recurrent.delta_floats()));
}

void ReferenceCache::copy_page(int group, PageId from, PageId to) {
  std::ranges::copy(page(group, from), page(group, to).begin());
}

void ReferenceCache::copy_state(int from_slot, int to_slot) {
  std::ranges::copy(state(from_slot), state(to_slot).begin());
  last_sampled(to_slot) = last_sampled(from_slot);
}

size_t ReferenceCache::page_bytes(int group) const { return groups_[static_cast<size_t>(group)].page_bytes; }

Status ReferenceCache::read_page(int group, PageId page_id, std::span<std::byte> out) {
  ZINC_CHECK(out.size() == page_bytes(group));
  std::ranges::copy(page(group, page_id), out.begin());
  return ok_status();
}

Status ReferenceCache::write_page(int group, PageId page_id, std::span<const std::byte> in) {
  ZINC_CHECK(in.size() == page_bytes(group));
  std::ranges::copy(in, page(group, page_id).begin());
  return ok_status();
}

Status ReferenceCache::read_state(int slot, std::span<std::byte> out) {
  ZINC_CHECK(out.size() == state_bytes());
  std::ranges::copy(std::as_bytes(state(slot)), out.begin());
  return ok_status();
}

Status ReferenceCache::write_state(int slot, std::span<const std::byte> in) {
  ZINC_CHECK(in.size() == state_bytes());
  std::ranges::copy(in, std::as_writable_bytes(state(slot)).begin());
  return ok_status();
}

}  // namespace zinc::reference
