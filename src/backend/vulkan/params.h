// What each kernel is given: the structs of shader/*.comp and *.glsl as the host writes them. Both lie as C++ lays them
// out (scalar layout); every struct that is part of another is a multiple of 8 bytes long.
#pragma once

#include <cstdint>

namespace zinc::vulkan {

inline constexpr int kPanelRows = 32;      // weight rows that lie interleaved, one per thread
inline constexpr int kSegmentElems = 256;  // inputs whose products are summed before anything else is added to them
inline constexpr int kGroupElems = 32;
inline constexpr int kSegmentGroups = 8;
inline constexpr int kThreads = 256;  // of every workgroup
inline constexpr int kWarps = 8;
inline constexpr int kPagePositions = 32;
inline constexpr int kChunkPositions = 256;  // positions whose attention is summed before it is merged with others
inline constexpr int kMaxGroups = 4;         // page groups of a model
inline constexpr int kMaxTaps = 8;           // of a short convolution
inline constexpr int kMaxExperts = 1024;
inline constexpr int kMaxParts = 4;       // matrices multiplied in one dispatch
inline constexpr int kMaxUsed = 64;       // experts of a token
inline constexpr int kMaxMixed = 32;      // likewise, whose last products are one dispatch
inline constexpr int kConvTokens = 16;    // of a convolution, a workgroup
inline constexpr int kDeltaChunk = 64;    // positions that the gated delta rule takes together
inline constexpr int kMaxDeltaDim = 128;  // of keys and of values, where it does
inline constexpr int kMaxSplits = 8;
inline constexpr int kSampleSplits = 128;     // parts of a row of logits searched at once
inline constexpr int kMaxMatrixValues = 256;  // numbers of a value that attention on matrices takes
inline constexpr int kFinePositions = 512;

// Where the counts of a step lie in its upload.
enum Count : int {
  kAlwaysOne = -1,
  kTokens = 0,
  kSeqs = 1,
  kOutputs = 2,
  kLogitRows = 3,
  kStride = 4,
  kEntries = 4 + kMaxGroups,
  kStepNumber = 4 + 2 * kMaxGroups,
  kCounts = 16
};

struct StepBlock {
  uint64_t counts, tokens, positions, seq_of_token, seq_begin, slots, output_rows, logit_rows, first_column;
  uint64_t hidden_in, last_sampled, sampled, logits_out, hidden_out;
  int max_seqs, unused;
};

struct Matrix {
  uint64_t bytes, panel_bytes, matrix_bytes;
  int n_in, n_out, n_segments, n_splits;
};

struct Rounded {
  uint64_t q, scale, sum;
  int stride, block;
};

struct Route {
  uint64_t logits, ids, weights;
  int n_experts, n_used, mode;
  float scale;
};

// Of a dispatch that waits for others by counting them; the first member of its block.
struct Chain {
  uint64_t before, own;
  int n_before, unused;
};

enum InputKind : int { kAsIs = 0, kNormed = 1, kGatedHeads = 2 };
struct LinearBlock {
  Chain chain;
  Matrix parts[kMaxParts];
  uint64_t outs[kMaxParts], biases[kMaxParts], expert_scales[kMaxParts];
  uint64_t added, x, norm_weight;
  Rounded rounded;
  uint64_t expert_ids, order, tiles, n_tiles;
  float norm_eps;
  int n_rows, n_parts, act, per_row, n_used, x_per_used, head_dim;
  uint64_t gate;
  Route route;
  uint64_t mix_weights, last_x, last_gate;
};

struct EmbedBlock {
  Matrix table;
  uint64_t out;
};

enum NormKindOf : int { kPlain = 0, kRms = 1, kL2 = 2 };
struct NormBlock {
  uint64_t x, weight, out;
  Rounded rounded;
  int n_rows, per_row, width, kind;
  float eps;
};

struct Turns {
  uint64_t coarse, fine;
  int n_pairs, adjacent;
};

struct RopeBlock {
  uint64_t x, out;
  Turns turns;
  int n_rows, n_heads, head_dim;
};

struct GateBlock {
  uint64_t gate, up, out;
  Rounded rounded;
  int n_rows, per_row, width, one_gate, act;
};

enum ElementwiseOp : int { kAdd = 0, kMul = 1, kScale = 2, kSoftcap = 3 };
struct ElementwiseBlock {
  uint64_t a, b, out;
  int n_rows, width, b_width, op;
  float factor;
};

enum CopyKind : int { kCopy = 0, kOutputRows = 1, kHiddenIn = 2, kLogitsOut = 3, kHiddenOut = 4 };
struct CopyBlock {
  uint64_t from, to;
  int kind, n_rows, per_row, from_width, from_begin, to_width, to_begin, n_copied;
};

enum KvKind : int { kKvF32 = 0, kKvF16 = 1, kKvQ8 = 2 };
struct KvLayer {
  uint64_t pages, page_bytes;
  int head_bytes, value_begin, kv_heads, k_dim, v_dim, group;
};

struct HeadPart {
  uint64_t x, norm_weight;
  Turns turns;
  int n_heads, dim, is_normed;
  float eps;
  int stride, unused;
};

struct HeadsBlock {
  KvLayer kv;
  HeadPart parts[3];
  uint64_t q_out;
  int n_rows;
};

struct AttentionBlock {
  Chain chain;
  KvLayer kv;
  HeadPart parts[3];
  uint64_t q, sinks, out, partial, counters, gate;
  int n_rows, n_heads, heads_per_tile, tokens_per_tile, n_chunks, window;
  float scale, softcap;
  int gate_stride, gate_act;
};

struct RouteBlock {
  Route route;
  int n_rows;
};

struct GroupPairsBlock {
  uint64_t ids, order, tiles, n_tiles;
  int n_rows, n_used, n_experts, tile_rows;
};

struct CombineBlock {
  uint64_t x, weights, added, out;
  int n_rows, n_used, dim;
};

struct ConvBlock {
  uint64_t x, weight, out, states, slot_bytes;
  int n_channels, n_taps;
};

struct DeltaBlock {
  uint64_t q, k, v, alpha, beta, dt_bias, a, out, states, slot_bytes;
  int k_heads, v_heads, k_dim, v_dim, is_cyclic;
  float q_scale;
};

// Which of a run's tokens go one after the other.
enum DeltaPart : int { kBeforeChunks = 0, kAfterChunks = 1 };
struct DeltaChunksBlock {
  DeltaBlock delta;
  uint64_t prepared;
  int part, unused;
};

struct DeltaOneBlock {
  Chain chain;
  DeltaBlock delta;
  ConvBlock conv;
  float eps;
};

struct SampleBlock {
  uint64_t logits, best, best_id;
  int vocab;
};

static_assert(sizeof(Matrix) == 40 && sizeof(Rounded) == 32 && sizeof(Turns) == 24 && sizeof(KvLayer) == 40);
static_assert(sizeof(Chain) == 24 && sizeof(HeadPart) == 64 && sizeof(Route) == 40 && sizeof(ConvBlock) == 48 &&
              sizeof(DeltaBlock) == 104);
static_assert(sizeof(StepBlock) == 120 && sizeof(LinearBlock) % 8 == 0);

}  // namespace zinc::vulkan
