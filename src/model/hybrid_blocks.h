// Shared by the Qwen hybrids (qwen3next, qwen35, qwen35moe): layers of gated DeltaNet, every n-th a layer of gated
// attention, and an optional draft block at the end of the file (MTP). A family's file defines how its DeltaNet inputs
// are packed and its FFN; the rest is here.
#pragma once

#include <functional>
#include <vector>

#include "model/blocks.h"

namespace zinc {

// Every value is at most 2^20, so that the product of any three cannot overflow.
struct HybridDims {
  int64_t dim = 1;
  int n_trunk = 0;                  // layers of the main model; also the index of the MTP block
  std::vector<bool> is_recurrent;   // per trunk layer
  int64_t heads = 1, kv_heads = 1;  // attention
  int64_t head_dim = 1;
  int64_t k_heads = 1, v_heads = 1;  // DeltaNet
  int64_t state_dim = 1;             // of a DeltaNet head's keys, and of its values
  int64_t conv_taps = 1;
  float norm_eps = 0;
  RopeParams rope;

  int64_t key_dim() const { return k_heads * state_dim; }
  int64_t value_dim() const { return v_heads * state_dim; }
  int64_t qkv_dim() const { return 2 * key_dim() + value_dim(); }
};
HybridDims read_hybrid_dims(const ModelConfig& config, Metadata& metadata);

// Input projections of a DeltaNet layer, before the convolution.
struct DeltaNetProjections {
  Value qkv;          // [T, qkv_dim]: all queries, all keys, all values
  Value z;            // [T, value_dim], the output gate
  Value alpha, beta;  // [T, v_heads]
};

struct HybridFamily {
  HeadSharing sharing;  // which key head a value head uses
  std::function<DeltaNetProjections(const LayerWeights&, Value x)> projections;
  std::function<Value(const LayerWeights&, Value x)> ffn;
};

// One matrix for each of q+k+v, z, alpha, beta.
DeltaNetProjections separate_projections(GraphBuilder& g, const LayerWeights& w, Value x, const HybridDims& dims);

// The whole model, and the MTP block: its input is a token and the main model's hidden state one position earlier.
void build_hybrid(GraphBuilder& g, const ModelConfig& config, const HybridDims& dims, const HybridFamily& family);
void build_mtp_block(GraphBuilder& g, const ModelConfig& config, const HybridDims& dims, const HybridFamily& family);
bool has_mtp_block(Metadata& metadata);

}  // namespace zinc
