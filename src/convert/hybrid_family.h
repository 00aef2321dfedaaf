// Qwen's hybrid models: gated DeltaNet layers, every n-th one gated attention, and a draft (MTP) block at the end.
#pragma once

#include "convert/family_blocks.h"

namespace zinc {

struct HybridLayout {
  bool cyclic_value_heads;  // value heads are reordered so that head i belongs to key head i modulo their number
  bool packed_projections;  // in_proj_qkvz and in_proj_ba, per key head, instead of four matrices
  bool has_experts;         // routed and shared, instead of an FFN
};
// The interleaved sections of M-RoPE, which llama.cpp requires of Qwen3.5; for text they change nothing.
void set_mrope_sections(ModelMapping& m);
void map_hybrid(ModelMapping& m, const HybridLayout& layout);

}  // namespace zinc
