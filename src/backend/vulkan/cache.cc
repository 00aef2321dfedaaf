#include "backend/vulkan/cache.h"

#include <algorithm>
#include <array>

namespace zinc::vulkan {
namespace {

size_t padded(int n) { return (static_cast<size_t>(n) + 31) / 32 * 32; }

struct KvFormatInfo {
  std::string_view name;
  KvFormat format;
  size_t block_bytes;  // per 32 elements
};
constexpr std::array<KvFormatInfo, 3> kKvFormats = {
    {{"f32", kKvF32, 128}, {"f16", kKvF16, 64}, {"q8_0", kKvQ8, 32 + sizeof(float)}}};

int64_t conv_floats(const RecurrentCache& r) { return int64_t{r.conv_channels} * r.conv_taps; }

// Bytes of 32 positions of n elements each.
size_t panel_bytes(const KvFormatInfo& format, int n) { return padded(n) / 32 * format.block_bytes * kPageTokens; }

Result<const KvFormatInfo*> find_kv_format(const CacheSizes& sizes, std::span<const LayerCache> layers) {
  const std::string_view name = sizes.kv_format ? sizes.kv_format->name : "(none)";
  const auto* format = std::ranges::find(kKvFormats, name, &KvFormatInfo::name);
  if (format == kKvFormats.end()) {
    return fail(ErrorCode::unsupported,
                "the vulkan backend does not support KV cache format '{}'; it supports f32, f16 and q8_0", name);
  }
  if (Status fits = check_kv_blocks(*sizes.kv_format, layers); !fits.ok()) return fits.error();
  return format;
}

}  // namespace

Result<std::unique_ptr<VulkanCache>> VulkanCache::allocate(std::span<const LayerCache> layers, const CacheSizes& sizes,
                                                           Device& device) {
  ZINC_TRY(format, find_kv_format(sizes, layers));
  auto cache = std::make_unique<VulkanCache>();
  cache->device_ = &device;
  cache->layers_.assign(layers.begin(), layers.end());
  cache->storage_.resize(layers.size());
  cache->kv_format_ = format->format;
  const std::vector<PageGroup> groups = page_groups(layers);
  ZINC_CHECK(groups.size() == sizes.n_pages.size());
  if (groups.size() > kMaxPageGroups) {
    return fail(ErrorCode::unsupported,
                "the vulkan backend supports up to {} different attention windows; this model has {}", kMaxPageGroups,
                groups.size());
  }
  for (size_t g = 0; g < groups.size(); ++g) {
    Group group{.page_bytes = 0, .n_pages = sizes.n_pages[g], .window = groups[g].window, .layers = groups[g].layers};
    for (int layer : group.layers) {
      const AttentionCache& kv = layers[static_cast<size_t>(layer)].attention;
      LayerStorage& storage = cache->storage_[static_cast<size_t>(layer)];
      storage.group = static_cast<int>(g);
      storage.value_begin = panel_bytes(*format, kv.k_dim);
      storage.head_bytes = storage.value_begin + panel_bytes(*format, kv.v_dim);
      storage.page_bytes = storage.head_bytes * static_cast<size_t>(kv.kv_heads);
      group.page_bytes += storage.page_bytes;
      ZINC_TRY(pages, device.allocate(storage.page_bytes * static_cast<size_t>(group.n_pages), "the KV cache"));
      storage.pages = std::move(pages);
    }
    cache->groups_.push_back(std::move(group));
  }
  for (size_t i = 0; i < layers.size(); ++i) {
    cache->storage_[i].state_begin = cache->state_bytes_;
    const int64_t floats = conv_floats(layers[i].recurrent) + layers[i].recurrent.delta_floats();
    cache->state_bytes_ += static_cast<size_t>(floats) * sizeof(float);
  }
  cache->n_slots_ = sizes.n_slots;
  cache->max_length_ = sizes.max_length;
  const size_t n_slots = static_cast<size_t>(sizes.n_slots);
  ZINC_TRY(states, device.allocate(cache->state_bytes_ * n_slots, "recurrent states"));
  ZINC_TRY(sampled, device.allocate(n_slots * sizeof(int), "sampled tokens"));
  cache->states_ = std::move(states);
  cache->last_sampled_ = std::move(sampled);
  return cache;
}

VulkanCache::~VulkanCache() {
  if (device_) [[maybe_unused]]
    const Status done = device_->wait_all();
}

size_t VulkanCache::page_index(int group, PageId page) const {
  ZINC_CHECK(page >= 0 && page < n_pages(group));
  return static_cast<size_t>(page);
}

int VulkanCache::max_visible_positions(int group) const {
  int n = n_pages(group) * kPageTokens;
  if (max_length_ > 0) n = std::min(n, max_length_);
  return window(group) > 0 ? std::min(n, window(group)) : n;
}

KvLayer VulkanCache::kv_layer(int layer) const {
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

Address VulkanCache::conv_states(int layer) const {
  return states_.address() + storage_[static_cast<size_t>(layer)].state_begin;
}
Address VulkanCache::delta_states(int layer) const {
  const int64_t n = conv_floats(layers_[static_cast<size_t>(layer)].recurrent);
  return conv_states(layer) + static_cast<size_t>(n) * sizeof(float);
}

void VulkanCache::copy(const std::function<void(VkCommandBuffer)>& commands) {
  const Result<TimelineValue> copied = device_->run(commands);
  if (!copied.ok() && !failed_copy_) failed_copy_ = copied.error();
}

void VulkanCache::copy_page(int group, PageId from, PageId to) {
  const size_t from_page = page_index(group, from), to_page = page_index(group, to);
  copy([&](VkCommandBuffer c) {
    for (int layer : groups_[static_cast<size_t>(group)].layers) {
      const LayerStorage& storage = storage_[static_cast<size_t>(layer)];
      const VkBufferCopy region{from_page * storage.page_bytes, to_page * storage.page_bytes, storage.page_bytes};
      device_->api().CmdCopyBuffer(c, storage.pages.handle(), storage.pages.handle(), 1, &region);
    }
  });
}

void VulkanCache::copy_state(int from_slot, int to_slot) {
  ZINC_CHECK(from_slot >= 0 && from_slot < n_slots_ && to_slot >= 0 && to_slot < n_slots_);
  if (from_slot == to_slot) return;
  const size_t from = static_cast<size_t>(from_slot), to = static_cast<size_t>(to_slot);
  copy([&](VkCommandBuffer c) {
    const VkBufferCopy state{from * state_bytes_, to * state_bytes_, state_bytes_};
    if (state_bytes_ > 0) device_->api().CmdCopyBuffer(c, states_.handle(), states_.handle(), 1, &state);
    const VkBufferCopy token{from * sizeof(int), to * sizeof(int), sizeof(int)};
    device_->api().CmdCopyBuffer(c, last_sampled_.handle(), last_sampled_.handle(), 1, &token);
  });
}

Status VulkanCache::read_page(int group, PageId id, std::span<std::byte> out) {
  ZINC_CHECK(out.size() == page_bytes(group));
  for (int layer : groups_[static_cast<size_t>(group)].layers) {
    const LayerStorage& storage = storage_[static_cast<size_t>(layer)];
    const size_t offset = page_index(group, id) * storage.page_bytes;
    if (Status s = device_->read(storage.pages, offset, out.first(storage.page_bytes)); !s.ok()) return s;
    out = out.subspan(storage.page_bytes);
  }
  return ok_status();
}

Status VulkanCache::write_page(int group, PageId id, std::span<const std::byte> in) {
  ZINC_CHECK(in.size() == page_bytes(group));
  for (int layer : groups_[static_cast<size_t>(group)].layers) {
    const LayerStorage& storage = storage_[static_cast<size_t>(layer)];
    const size_t offset = page_index(group, id) * storage.page_bytes;
    if (Status s = device_->write(storage.pages, offset, in.first(storage.page_bytes)); !s.ok()) return s;
    in = in.subspan(storage.page_bytes);
  }
  return ok_status();
}

Status VulkanCache::read_state(int slot, std::span<std::byte> out) {
  ZINC_CHECK(out.size() == state_bytes() && slot >= 0 && slot < n_slots_);
  return out.empty() ? ok_status() : device_->read(states_, static_cast<size_t>(slot) * state_bytes_, out);
}

Status VulkanCache::write_state(int slot, std::span<const std::byte> in) {
  ZINC_CHECK(in.size() == state_bytes() && slot >= 0 && slot < n_slots_);
  return in.empty() ? ok_status() : device_->write(states_, static_cast<size_t>(slot) * state_bytes_, in);
}

}  // namespace zinc::vulkan
