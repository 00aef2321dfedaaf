#include "backend/split/split_cache.h"

#include <algorithm>

#include "base/check.h"

namespace zinc::split {

Result<std::unique_ptr<SplitCache>> SplitCache::allocate(std::span<const std::vector<LayerCache>> own,
                                                         std::span<const std::shared_ptr<Backend>> devices,
                                                         std::span<const LayerCache> layers, const CacheSizes& sizes) {
  auto cache = std::make_unique<SplitCache>();
  const std::vector<PageGroup> groups = page_groups(layers);
  ZINC_CHECK(groups.size() == sizes.n_pages.size() && own.size() == devices.size());
  for (size_t d = 0; d < devices.size(); ++d) {
    Part part;
    CacheSizes own_sizes = sizes;
    own_sizes.n_pages.clear();
    for (const PageGroup& group : page_groups(own[d])) {
      const auto whole = std::ranges::find(groups, group.window, &PageGroup::window);
      part.groups.push_back(static_cast<int>(whole - groups.begin()));
      own_sizes.n_pages.push_back(sizes.n_pages[static_cast<size_t>(part.groups.back())]);
    }
    ZINC_TRY(memory, devices[d]->allocate_cache(own[d], own_sizes));
    part.memory = std::move(memory);
    cache->parts_.push_back(std::move(part));
  }
  cache->last_sampled_.resize(static_cast<size_t>(sizes.n_slots));
  return cache;
}

template <class F>
void SplitCache::for_each_with(int group, F f) const {
  for (const Part& part : parts_) {
    const auto own = std::ranges::find(part.groups, group);
    if (own != part.groups.end()) f(*part.memory, static_cast<int>(own - part.groups.begin()));
  }
}

size_t SplitCache::device_bytes() const {
  size_t n = 0;
  for (const Part& part : parts_) n += part.memory->device_bytes();
  return n;
}

void SplitCache::copy_page(int group, PageId from, PageId to) {
  for_each_with(group, [&](CacheMemory& memory, int own) { memory.copy_page(own, from, to); });
}

void SplitCache::copy_state(int from_slot, int to_slot) {
  for (const Part& part : parts_) part.memory->copy_state(from_slot, to_slot);
  last_sampled(to_slot) = last_sampled(from_slot);
}

void SplitCache::prefault_pages(int group, PageId first, int n_pages) {
  for_each_with(group, [&](CacheMemory& memory, int own) { memory.prefault_pages(own, first, n_pages); });
}

size_t SplitCache::page_bytes(int group) const {
  size_t n = 0;
  for_each_with(group, [&](const CacheMemory& memory, int own) { n += memory.page_bytes(own); });
  return n;
}

size_t SplitCache::state_bytes() const {
  size_t n = 0;
  for (const Part& part : parts_) n += part.memory->state_bytes();
  return n;
}

Status SplitCache::read_page(int group, PageId page, std::span<std::byte> out) {
  Status status = ok_status();
  for_each_with(group, [&](CacheMemory& memory, int own) {
    const size_t n = memory.page_bytes(own);
    if (status.ok()) status = memory.read_page(own, page, out.first(n));
    out = out.subspan(n);
  });
  return status;
}

Status SplitCache::write_page(int group, PageId page, std::span<const std::byte> in) {
  Status status = ok_status();
  for_each_with(group, [&](CacheMemory& memory, int own) {
    const size_t n = memory.page_bytes(own);
    if (status.ok()) status = memory.write_page(own, page, in.first(n));
    in = in.subspan(n);
  });
  return status;
}

Status SplitCache::read_state(int slot, std::span<std::byte> out) {
  for (const Part& part : parts_) {
    const size_t n = part.memory->state_bytes();
    if (n == 0) continue;
    if (Status s = part.memory->read_state(slot, out.first(n)); !s.ok()) return s;
    out = out.subspan(n);
  }
  return ok_status();
}

Status SplitCache::write_state(int slot, std::span<const std::byte> in) {
  for (const Part& part : parts_) {
    const size_t n = part.memory->state_bytes();
    if (n == 0) continue;
    if (Status s = part.memory->write_state(slot, in.first(n)); !s.ok()) return s;
    in = in.subspan(n);
  }
  return ok_status();
}

}  // namespace zinc::split
