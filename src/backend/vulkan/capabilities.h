// What a Vulkan device can do, asked once, and what follows for its kernels. Vendor classes and their tuning are rows
// of a table, not branches.
#pragma once

#include <string>
#include <vector>

#include "backend/vulkan/api.h"

namespace zinc::vulkan {

struct Capabilities {
  std::string name, driver;
  uint32_t vendor_id = 0, device_id = 0, driver_version = 0, api_version = 0;
  VkPhysicalDeviceType type = VK_PHYSICAL_DEVICE_TYPE_OTHER;
  std::vector<uint8_t> cache_id;  // what a pipeline cache belongs to
  int min_subgroup = 0, max_subgroup = 0, default_subgroup = 0;
  int n_processors = 0;  // multiprocessors or compute units; 0: its driver does not say
  bool has_shuffle = false, has_subgroup_control = false, has_full_subgroups = false;
  bool has_addresses = false, has_int64 = false, has_scalar_layout = false, has_timelines = false;
  bool has_integer_dot = false, has_fast_integer_dot = false;
  bool has_int8 = false, has_float16 = false, has_matrices = false;
  int matrix_depth = 0;  // inputs of a 16 x 16 product of signed bytes on cooperative matrices; 0: it has none
  bool has_half_matrices = false;  // likewise 16 x 16 x 16 halves, summed in floats
  size_t shared_bytes = 0, max_allocation_bytes = 0, uniform_alignment = 256;
  size_t device_memory_bytes = 0;  // of the largest device-local heap
  double timestamp_ns = 1;
  bool has_memory_budget = false, has_statistics = false;  // statistics: of compiled kernels
};

// How kernels are cut for a maker's devices.
struct Tuning {
  uint32_t vendor_id;      // 0: any other
  int subgroup;            // wanted, where there is a choice
  int attention_groups;    // workgroups of one token's attention: tiles of heads times splits of the chunks of keys
  int few_rows;            // rows of activations a workgroup multiplies at once in small steps
  int product_rows;        // and in prompts
  int mix_ahead;           // segments of experts a warp has under way at once: as many as its registers hold
  int float_pieces;        // sixteens of bytes of weights in floats a thread has under way with one row
  int float_pieces_alone;  // likewise where few workgroups do it alone
  int processors;          // of the maker's device this was tuned for: taken where the driver does not say how many
  bool starts_in_order;    // workgroups of dispatches, so that the later may wait for the earlier: Device::test_order
  bool records_ahead;      // every size is recorded and compiled when the plan is made
};

Capabilities ask(const InstanceApi& api, VkPhysicalDevice device);
const Tuning& tuning_of(const Capabilities& device);
int subgroup_for(const Capabilities& device);     // the size every kernel is compiled for
int processors_of(const Capabilities& device);    // that run workgroups, at least one each at once
std::string missing(const Capabilities& device);  // the first thing that is needed and not there; empty: none

}  // namespace zinc::vulkan
