#include "backend/gpu/cache.h"

#include <algorithm>
#include <limits>

#include "base/ceil_div.h"

namespace zinc::gpu {
namespace {

// Bytes of a page's positions, of n elements each.
size_t panel_bytes(const KvFormat& format, int n) {
  return static_cast<size_t>((n + kKvBlock - 1) / kKvBlock) * format.block_bytes * kPageTokens;
}

// One more than the history: the current input has an entry that no other thread reads.
size_t conv_bytes(const RecurrentCache& r) {
  return static_cast<size_t>(r.conv_channels) * static_cast<size_t>(r.conv_taps) * sizeof(float);
}

std::string list_of(std::span<const KvFormat> formats) {  // "f32, f16 and q8_0"
  std::string names;
  for (size_t i = 0; i < formats.size(); ++i) {
    names += i == 0 ? "" : i + 1 == formats.size() ? " and " : ", ";
    names += formats[i].name;
  }
  return names;
}

Result<const KvFormat*> find_kv_format(const CacheSizes& sizes, std::span<const LayerCache> layers,
                                       const KernelFormats& formats) {
  const std::string_view name = sizes.kv_format ? sizes.kv_format->name : "(none)";
  const auto found = std::ranges::find(formats.kv_formats, name, &KvFormat::name);
  if (found == formats.kv_formats.end()) {
    return fail(ErrorCode::unsupported, "the {} backend does not support KV cache format '{}'; it supports {}",
                formats.backend, name, list_of(formats.kv_formats));
  }
  if (Status fits = check_kv_blocks(*sizes.kv_format, layers); !fits.ok()) return fits.error();
  return &*found;
}

}  // namespace

Result<std::unique_ptr<Cache>> Cache::allocate(std::span<const LayerCache> layers, const CacheSizes& sizes,
                                               Device& device, const KernelFormats& formats) {
  ZINC_TRY(format, find_kv_format(sizes, layers, formats));
  if (const size_t n_groups = page_groups(layers).size(); n_groups > kMaxPageGroups) {
    return fail(ErrorCode::unsupported,
                "the {} backend supports up to {} different attention windows; this model has {}", formats.backend,
                kMaxPageGroups, n_groups);
  }
  auto cache = std::make_unique<Cache>();
  cache->device_ = &device;
  cache->layers_.assign(layers.begin(), layers.end());
  cache->storage_.resize(layers.size());
  cache->kv_format_ = format;
  cache->n_slots_ = sizes.n_slots;
  cache->max_length_ = sizes.max_length;
  if (Status s = cache->allocate_pages(sizes); !s.ok()) return s.error();
  if (Status s = cache->allocate_states(sizes); !s.ok()) return s.error();
  return cache;
}

Status Cache::allocate_pages(const CacheSizes& sizes) {
  const std::vector<PageGroup> groups = page_groups(layers_);
  ZINC_CHECK(groups.size() == sizes.n_pages.size());
  for (size_t g = 0; g < groups.size(); ++g) {
    Group group{.page_bytes = 0, .n_pages = sizes.n_pages[g], .window = groups[g].window, .layers = groups[g].layers};
    for (int layer : group.layers) {
      const AttentionCache& kv = layers_[static_cast<size_t>(layer)].attention;
      LayerStorage& storage = storage_[static_cast<size_t>(layer)];
      storage.group = static_cast<int>(g);
      storage.value_begin = panel_bytes(*kv_format_, kv.k_dim);
      storage.head_bytes = storage.value_begin + panel_bytes(*kv_format_, kv.v_dim);
      storage.page_bytes = storage.head_bytes * static_cast<size_t>(kv.kv_heads);
      group.page_bytes += storage.page_bytes;
      ZINC_TRY(pages, device_->allocate(storage.page_bytes * static_cast<size_t>(group.n_pages), "the KV cache"));
      storage.pages = std::move(pages);
      device_bytes_ += storage.pages.size();
    }
    groups_.push_back(std::move(group));
  }
  return ok_status();
}

Status Cache::allocate_states(const CacheSizes& sizes) {
  const size_t n_slots = static_cast<size_t>(sizes.n_slots);
  for (size_t i = 0; i < layers_.size(); ++i) {
    const RecurrentCache& recurrent = layers_[i].recurrent;
    LayerStorage& storage = storage_[i];
    storage.slot_bytes = conv_bytes(recurrent) + static_cast<size_t>(recurrent.delta_floats()) * sizeof(float);
    ZINC_TRY(states, device_->allocate(storage.slot_bytes * n_slots, "recurrent states"));
    storage.states = std::move(states);
    state_bytes_ += storage.slot_bytes;
    device_bytes_ += storage.states.size();
  }
  ZINC_TRY(sampled, device_->allocate(n_slots * sizeof(int), "sampled tokens"));
  last_sampled_ = std::move(sampled);
  device_bytes_ += last_sampled_.size();
  return ok_status();
}

Cache::~Cache() {
  if (device_) [[maybe_unused]]
    const Status done = device_->wait_all();
}

size_t Cache::page_index(int group, PageId page) const {
  ZINC_CHECK(page >= 0 && page < n_pages(group));
  return static_cast<size_t>(page);
}

size_t Cache::slot_index(int slot) const {
  ZINC_CHECK(slot >= 0 && slot < n_slots_);
  return static_cast<size_t>(slot);
}

int Cache::max_visible_positions(int group) const {
  int n = n_pages(group) * kPageTokens;
  if (max_length_ > 0) n = std::min(n, max_length_);
  return window(group) > 0 ? std::min(n, window(group)) : n;
}

int Cache::max_chunks(int group) const {
  const int n = static_cast<int>(ceil_div(max_visible_positions(group), kChunkPositions));
  // Both ends of a sliding window may lie inside a chunk.
  return window(group) > 0 ? n + 1 : std::max(1, n);
}

int Cache::min_kv_heads(int group) const {
  int n = std::numeric_limits<int>::max();
  for (const int layer : groups_[static_cast<size_t>(group)].layers) n = std::min(n, kv_layer(layer).kv_heads);
  return n;
}

KvLayer Cache::kv_layer(int layer) const {
  const LayerStorage& storage = storage_[static_cast<size_t>(layer)];
  const AttentionCache& kv = layers_[static_cast<size_t>(layer)].attention;
  return {.pages = storage.pages.address(),
          .page_bytes = storage.page_bytes,
          .head_bytes = static_cast<int>(storage.head_bytes),
          .value_begin = static_cast<int>(storage.value_begin),
          .kv_heads = kv.kv_heads,
          .k_dim = kv.k_dim,
          .v_dim = kv.v_dim,
          .group = storage.group};
}

Address Cache::delta_states(int layer) const {
  return conv_states(layer) + conv_bytes(layers_[static_cast<size_t>(layer)].recurrent);
}

void Cache::copy(std::span<const BufferCopy> copies) {
  const Status copied = device_->copy(copies);
  if (!copied.ok() && !failed_copy_) failed_copy_ = copied.error();
}

void Cache::copy_page(int group, PageId from, PageId to) {
  const size_t from_page = page_index(group, from), to_page = page_index(group, to);
  std::vector<BufferCopy> copies;
  for (int layer : groups_[static_cast<size_t>(group)].layers) {
    const LayerStorage& storage = storage_[static_cast<size_t>(layer)];
    copies.push_back({.from = storage.pages,
                      .from_offset = from_page * storage.page_bytes,
                      .to = storage.pages,
                      .to_offset = to_page * storage.page_bytes,
                      .n_bytes = storage.page_bytes});
  }
  copy(copies);
}

void Cache::copy_state(int from_slot, int to_slot) {
  const size_t from = slot_index(from_slot), to = slot_index(to_slot);
  if (from == to) return;
  const auto slot_copy = [&](const Buffer& buffer, size_t n_bytes) {
    return BufferCopy{
        .from = buffer, .from_offset = from * n_bytes, .to = buffer, .to_offset = to * n_bytes, .n_bytes = n_bytes};
  };
  std::vector<BufferCopy> copies = {slot_copy(last_sampled_, sizeof(int))};
  for (const LayerStorage& storage : storage_) {
    if (storage.slot_bytes > 0) copies.push_back(slot_copy(storage.states, storage.slot_bytes));
  }
  copy(copies);
}

Status Cache::read_page(int group, PageId page, std::span<std::byte> out) {
  ZINC_CHECK(out.size() == page_bytes(group));
  for (int layer : groups_[static_cast<size_t>(group)].layers) {
    const LayerStorage& storage = storage_[static_cast<size_t>(layer)];
    const size_t offset = page_index(group, page) * storage.page_bytes;
    if (Status s = device_->read(storage.pages, offset, out.first(storage.page_bytes)); !s.ok()) return s;
    out = out.subspan(storage.page_bytes);
  }
  return ok_status();
}

Status Cache::write_page(int group, PageId page, std::span<const std::byte> in) {
  ZINC_CHECK(in.size() == page_bytes(group));
  for (int layer : groups_[static_cast<size_t>(group)].layers) {
    const LayerStorage& storage = storage_[static_cast<size_t>(layer)];
    const size_t offset = page_index(group, page) * storage.page_bytes;
    if (Status s = device_->write(storage.pages, offset, in.first(storage.page_bytes)); !s.ok()) return s;
    in = in.subspan(storage.page_bytes);
  }
  return ok_status();
}

Status Cache::read_state(int slot, std::span<std::byte> out) {
  ZINC_CHECK(out.size() == state_bytes());
  for (const LayerStorage& storage : storage_) {
    if (storage.slot_bytes == 0) continue;
    const size_t offset = slot_index(slot) * storage.slot_bytes;
    if (Status s = device_->read(storage.states, offset, out.first(storage.slot_bytes)); !s.ok()) return s;
    out = out.subspan(storage.slot_bytes);
  }
  return ok_status();
}

Status Cache::write_state(int slot, std::span<const std::byte> in) {
  ZINC_CHECK(in.size() == state_bytes());
  for (const LayerStorage& storage : storage_) {
    if (storage.slot_bytes == 0) continue;
    const size_t offset = slot_index(slot) * storage.slot_bytes;
    if (Status s = device_->write(storage.states, offset, in.first(storage.slot_bytes)); !s.ok()) return s;
    in = in.subspan(storage.slot_bytes);
  }
  return ok_status();
}

}  // namespace zinc::gpu
