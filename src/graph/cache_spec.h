// The cache of each layer, as data: keys and values in pages, or one recurrent state per sequence. Derived from the
// graph's nodes; the cache and the backends size their memory from it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "tensor/format.h"

namespace zinc {

inline constexpr int kPageTokens = 32;  // positions per KV page
using PageId = int32_t;
inline constexpr PageId kNoPage = -1;  // a page outside its layer's window, released
inline constexpr int kNoSlot = -1;     // of recurrent states

struct AttentionCache {
  int kv_heads = 0;  // 0: this layer has no keys and values of its own
  int k_dim = 0, v_dim = 0;
  int window = 0;  // 0: full attention, every position is kept
  bool operator==(const AttentionCache&) const = default;
};

struct RecurrentCache {
  int conv_channels = 0, conv_taps = 0;  // the last conv_taps - 1 inputs of each channel
  int heads = 0, k_dim = 0, v_dim = 0;   // delta-rule state: heads x k_dim x v_dim
  int64_t conv_floats() const { return int64_t{conv_channels} * (conv_taps > 0 ? conv_taps - 1 : 0); }
  int64_t delta_floats() const { return int64_t{heads} * k_dim * v_dim; }
  bool operator==(const RecurrentCache&) const = default;
};

struct LayerCache {
  AttentionCache attention;
  RecurrentCache recurrent;
  bool operator==(const LayerCache&) const = default;
};
// Layers with the same window share a page table: page p of a group is page p in each of its layers.
struct PageGroup {
  int window = 0;
  std::vector<int> layers;
};

// The page groups of `layers`, the unbounded one first, then by window; a group has at least one layer.
std::vector<PageGroup> page_groups(std::span<const LayerCache> layers);

// Bytes of one page over all layers of its group, and of one sequence's recurrent state over all layers.
size_t page_bytes(const PageGroup& group, std::span<const LayerCache> layers, const Format& kv_format);
size_t state_bytes(std::span<const LayerCache> layers);

// Whether keys are stored after a Hadamard transform, and queries transformed like them (tensor/hadamard.h).
inline bool transforms_keys(const Format& kv_format) { return kv_format.block_bytes < kv_format.block_elems; }

// Whether every head's keys and values are whole blocks of the format; the error names an alternative.
Status check_kv_blocks(const Format& kv_format, std::span<const LayerCache> layers);

}  // namespace zinc
