// Capabilities of a Vulkan device, queried once, and the tuning derived from them. Vendors are rows of a table, not
// branches.
#pragma once

#include <string>
#include <vector>

#include "backend/vulkan/api.h"

namespace zinc::vulkan {

struct Capabilities {
  std::string name, driver;
  uint32_t vendor_id = 0, device_id = 0, driver_version = 0, api_version = 0;
  vk::PhysicalDeviceType type = vk::PhysicalDeviceType::eOther;
  std::vector<uint8_t> cache_id;  // identifies the device and driver of a pipeline cache
  int min_subgroup = 0, max_subgroup = 0, default_subgroup = 0;
  int n_multiprocessors = 0;  // multiprocessors or compute units; 0: the driver does not report them
  bool has_shuffle = false, has_subgroup_control = false, has_full_subgroups = false;
  bool has_addresses = false, has_int64 = false, has_scalar_layout = false, has_timelines = false;
  bool has_integer_dot = false, has_fast_integer_dot = false;
  bool has_int8 = false, has_float16 = false, has_coopmat = false;
  int coopmat_k = 0;             // K of the 16 x 16 x K int8 cooperative matrix; 0: none
  bool has_coopmat_f16 = false;  // 16 x 16 x 16 f16 with f32 accumulators
  size_t shared_bytes = 0, max_allocation_bytes = 0, uniform_alignment = 256;
  size_t device_memory_bytes = 0;  // of the largest device-local heap
  double timestamp_ns = 1;
  bool has_memory_budget = false, has_statistics = false;  // statistics: of compiled pipelines
};

// Kernel tuning of a vendor's devices. The defaults are for a vendor without a row of its own.
struct Tuning {
  uint32_t vendor_id = 0;              // 0: any other vendor
  int subgroup = 32;                   // preferred subgroup size
  int attention_workgroups = 64;       // workgroups of one token's attention: tiles of heads times KV splits
  int small_batch_rows = 8;            // rows of activations per workgroup in small batches
  int small_gemm_workgroups = 2;       // of gemm_small.comp per multiprocessor: as many as run at once
  int prefill_rows = 8;                // rows of activations per workgroup in prefill
  int moe_down_prefetch = 1;           // segments prefetched per warp by moe_down.comp, as many as registers allow
  int float_loads_in_flight = 8;       // 16-byte loads of float weights per thread in decode
  int float_loads_few_workgroups = 8;  // the same for a dispatch of few workgroups
  int default_multiprocessors = 32;    // of the device this row was tuned on; used if the driver does not report them
  bool starts_in_order = false;  // workgroups of consecutive dispatches start in order, so that later ones may poll for
                                 // earlier ones; Device::test_dispatch_order() verifies it
  bool records_at_load =
      true;  // every step class; otherwise a class is compiled and recorded when a step first needs it
};

Capabilities query_capabilities(vk::Instance instance, vk::PhysicalDevice device);
const Tuning& tuning_of(const Capabilities& device);
int subgroup_size(const Capabilities& device);          // subgroup size of every kernel
bool has_dedicated_memory(const Capabilities& device);  // not in common with the host
int multiprocessors_of(const Capabilities& device);     // number of multiprocessors; each runs at least one workgroup
std::string missing_feature(
    const Capabilities& device);  // the first required feature that the device lacks; empty: none

}  // namespace zinc::vulkan
