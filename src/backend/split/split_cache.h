// The caches of a model that is divided over several devices, by layers or by the heads of each layer. A page or slot
// is the same id on every device; its bytes are those of the devices one after the other.
#pragma once

#include <memory>
#include <vector>

#include "backend/backend.h"

namespace zinc::split {

class SplitCache final : public CacheMemory {
 public:
  // `layers`: of the whole model; `own`: what each device has of them.
  static Result<std::unique_ptr<SplitCache>> allocate(std::span<const std::vector<LayerCache>> own,
                                                      std::span<const std::shared_ptr<Backend>> devices,
                                                      std::span<const LayerCache> layers, const CacheSizes& sizes);

  size_t device_bytes() const override;
  size_t device_bytes_on(size_t device) const override { return parts_[device].memory->device_bytes(); }
  void copy_page(int group, PageId from, PageId to) override;
  void copy_state(int from_slot, int to_slot) override;
  void prefault_pages(int group, PageId first, int n_pages) override;
  size_t page_bytes(int group) const override;
  size_t state_bytes() const override;
  Status read_page(int group, PageId page, std::span<std::byte> out) override;
  Status write_page(int group, PageId page, std::span<const std::byte> in) override;
  Status read_state(int slot, std::span<std::byte> out) override;
  Status write_state(int slot, std::span<const std::byte> in) override;

  CacheMemory& on(size_t device) { return *parts_[device].memory; }
  // The groups of the whole model that a device has, in the order of its own.
  std::span<const int> groups_on(size_t device) const { return parts_[device].groups; }
  // The token sampled last for a slot: the first stage needs it, the last one's device has it.
  TokenId& last_sampled(int slot) { return last_sampled_[static_cast<size_t>(slot)]; }

 private:
  struct Part {
    std::unique_ptr<CacheMemory> memory;
    std::vector<int> groups;
  };
  // Calls f(memory, group of the device) on each device that has the group.
  template <class F>
  void for_each_with(int group, F f) const;

  std::vector<Part> parts_;  // per device
  std::vector<TokenId> last_sampled_;
};

}  // namespace zinc::split
