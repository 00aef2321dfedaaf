// Parameters of the kernels, passed as uniform blocks: the structs of shader/*.comp and *.glsl as the host writes them.
// Scalar layout, equal to the C++ layout; the size of every nested struct is a multiple of 8 bytes.
#pragma once

#include <cstdint>

#include "backend/gpu/cache.h"
#include "backend/gpu/panel_format.h"

namespace zinc::vulkan {

using gpu::kPanelRows;                // one row of a panel per thread
using gpu::kSegmentElems;             // summed before anything else is added
inline constexpr int kThreads = 256;  // per workgroup
inline constexpr int kWarps = 8;
inline constexpr int kChunkPositions = 256;  // KV positions of a chunk, the unit of split-KV
using gpu::kMaxPageGroups;
inline constexpr int kMaxTaps = 8;  // taps of a short convolution
inline constexpr int kMaxExperts = 1024;
inline constexpr int kMaxParts = 4;            // matrices per matmul dispatch
inline constexpr int kMaxExpertsUsed = 64;     // selected experts per token
inline constexpr int kMaxMoeDownExperts = 32;  // selected experts per token that moe_down.comp can combine
inline constexpr int kConvTokens = 16;         // tokens of a short convolution per workgroup
inline constexpr int kDeltaChunk = 64;         // tokens per chunk of the chunked gated delta rule
inline constexpr int kMaxDeltaDim = 128;       // limit of k_dim and v_dim of the chunked gated delta rule
inline constexpr int kMaxSplits = 8;
inline constexpr int kSampleSplits = 128;        // parts of a row of logits searched in parallel
inline constexpr int kMaxCoopmatValueDim = 256;  // limit of v_dim of attention_coopmat.comp
inline constexpr int kFinePositions = 512;

// Indices of a step's counts in its upload. Index 3 differs from simt/params.h, which has kSampledRows there.
enum Count : int {
  kAlwaysOne = -1,
  kTokens = 0,
  kSeqs = 1,
  kOutputs = 2,
  kLogitRows = 3,
  kPageTableStride = 4,                   // + page group: columns per sequence in its page table
  kPageTableOffset = 4 + kMaxPageGroups,  // + page group: index of its page table in the upload, in ints
  kStepNumber = 4 + 2 * kMaxPageGroups,
  kCounts = 16
};

struct Matrix {
  uint64_t bytes, panel_bytes, matrix_bytes;
  int n_in, n_out, n_segments, n_splits;
};

struct Q8Activation {
  uint64_t q, scale, sum;
  int stride, block;
};

struct Route {
  uint64_t logits, ids, weights;
  int n_experts, n_experts_used, mode;  // mode: RouterNormalization (graph/op.h)
  float scale;
};

// Counter-based synchronization between dispatches (counter_sync.glsl); the first member of its uniform block.
struct CounterSync {
  uint64_t producer_counter, own_counter;
  int n_producers, unused;
};

// Whether and how a matmul kernel selects an expert's matrix.
enum ExpertMode : int {
  kDense = 0,
  kPairPerTile = 1,  // each tile is one (row, expert) pair
  kSortedTiles = 2,  // (row, expert) pairs sorted by expert (sort_by_expert.comp)
};
enum MatmulInputKind : int { kPlainInput = 0, kNormInput = 1, kGatedNormInput = 2 };

enum NormMode : int { kNoNorm = 0, kRms = 1, kL2 = 2 };

struct RopeTable {
  uint64_t coarse, fine;
  int n_pairs, adjacent;
};

enum ElementwiseOp : int { kAdd = 0, kMul = 1, kScale = 2, kSoftcap = 3 };

enum CopyKind : int { kCopy = 0, kOutputRows = 1, kHiddenIn = 2, kLogitsOut = 3, kHiddenOut = 4 };

enum KvFormat : int { kKvF32 = 0, kKvF16 = 1, kKvQ8 = 2 };
using gpu::KvLayer;

enum AttentionPart : int { kQuery = 0, kKey = 1, kValue = 2 };  // indices of HeadInput parts
struct HeadInput {
  uint64_t x, norm_weight;
  RopeTable rope;
  int n_heads, dim, is_normed;
  float eps;
  int stride, unused;
};

// The tokens outside of complete chunks, which delta_recurrent.comp processes one by one.
enum DeltaTokens : int { kBeforeChunks = 0, kAfterChunks = 1 };

// One struct per kernel, named as in simt/params.h. A namespace, because graph/op.h has structs of the same names.
namespace shader {

struct StepParams {
  uint64_t counts, tokens, positions, seq_of_token, seq_begin, slots, output_rows, logit_rows, first_column;
  uint64_t hidden_in, last_sampled, sampled, logits_out, hidden_out;
  int max_seqs, unused;
};

struct LinearParams {
  CounterSync sync;
  Matrix parts[kMaxParts];
  uint64_t outs[kMaxParts], biases[kMaxParts], expert_scales[kMaxParts];
  uint64_t residual, x, norm_weight;
  Q8Activation q8;
  uint64_t expert_ids, sorted_pairs, tiles, n_tiles;
  float norm_eps;
  int n_rows, n_parts, act, vectors_per_row, n_experts_used, x_per_expert, head_dim;
  uint64_t gate;
  Route route;
  uint64_t expert_weights, shared_expert_x, shared_expert_gate;
};

struct EmbedParams {
  Matrix table;
  uint64_t out;
};

struct NormParams {
  uint64_t x, weight, out;
  Q8Activation q8;
  int n_rows, vectors_per_row, width, kind;
  float eps;
};

struct RopeParams {
  uint64_t x, out;
  RopeTable rope;
  int n_rows, n_heads, head_dim;
};

struct GatedActParams {
  uint64_t gate, up, out;
  Q8Activation q8;
  int n_rows, vectors_per_row, width, scalar_gate, act;
};

struct ElementwiseParams {
  uint64_t a, b, out;
  int n_rows, width, b_width, op;
  float factor;
};

struct CopyParams {
  uint64_t from, to;
  int kind, n_rows, vectors_per_row, from_width, from_begin, to_width, to_begin, n_copied;
};

struct QkNormRopeParams {
  KvLayer kv;
  HeadInput parts[3];
  uint64_t q_out;
  int n_rows;
};

struct AttentionParams {
  CounterSync sync;
  KvLayer kv;
  HeadInput parts[3];
  uint64_t q, sinks, out, partial, done_counters, gate;
  int n_rows, n_heads, heads_per_tile, tokens_per_tile, n_chunks, window;
  float scale, softcap;
  int gate_stride, gate_act;
};

struct RouteParams {
  Route route;
  int n_rows;
};

struct SortByExpertParams {
  uint64_t ids, sorted_pairs, tiles, n_tiles;
  int n_rows, n_experts_used, n_experts, tile_rows;
};

struct CombineParams {
  uint64_t x, weights, residual, out;
  int n_rows, n_experts_used, dim;
};

struct ConvParams {
  uint64_t x, weight, out, states, slot_bytes;
  int n_channels, n_taps;
};

struct DeltaParams {
  uint64_t q, k, v, alpha, beta, dt_bias, a, out, states, slot_bytes;
  int k_heads, v_heads, k_dim, v_dim, is_cyclic;
  float q_scale;
};

struct DeltaChunksParams {
  DeltaParams delta;
  uint64_t prepared;
  int part, unused;
};

struct DeltaDecodeParams {
  CounterSync sync;
  DeltaParams delta;
  ConvParams conv;
  float eps;
};

struct SampleParams {
  uint64_t logits, best, best_id;
  int vocab;
};

}  // namespace shader

static_assert(sizeof(Matrix) == 40 && sizeof(Q8Activation) == 32 && sizeof(RopeTable) == 24 && sizeof(KvLayer) == 40);
static_assert(sizeof(CounterSync) == 24 && sizeof(HeadInput) == 64 && sizeof(Route) == 40 &&
              sizeof(shader::ConvParams) == 48 && sizeof(shader::DeltaParams) == 104);
static_assert(sizeof(shader::StepParams) == 120 && sizeof(shader::LinearParams) % 8 == 0);

}  // namespace zinc::vulkan
