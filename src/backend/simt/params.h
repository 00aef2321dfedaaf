// Kernel parameters, passed by value: plain structs shared by the host that launches and by the device code.
// Counts that change from step to step are pointers into the step's upload; everything else is fixed when a plan is
// compiled.
#pragma once

#ifdef __CUDACC__
#define ZINC_HOST_DEVICE __host__ __device__ constexpr
#else
#define ZINC_HOST_DEVICE constexpr
#endif

namespace zinc::simt {

inline constexpr int kPanelRows = 32;      // interleaved weight rows of a panel, one per lane
inline constexpr int kSegmentElems = 256;  // inputs of a K segment, summed before anything else is added
inline constexpr int kGroupElems = 32;     // inputs of a quant group, loaded together
inline constexpr int kSegmentGroups = 8;   // quant groups of a segment
inline constexpr int kThreads = 256;       // per block
inline constexpr int kWarps = kThreads / 32;
inline constexpr int kPageTokens = 32;       // positions of a KV page
inline constexpr int kChunkPositions = 256;  // KV positions of a chunk, which has its own partial softmax
inline constexpr int kAttentionRows = 8;     // query rows per block
inline constexpr int kMaxPageGroups = 4;     // KV page groups of a model
inline constexpr int kMaxTaps = 8;           // taps of a short convolution
inline constexpr int kMaxExperts = 1024;
inline constexpr int kDeltaChunk = 64;      // tokens per chunk of the chunked gated delta rule
inline constexpr int kDeltaColumns = 32;    // state columns per block
inline constexpr int kConvTokens = 64;      // tokens of a short convolution per block
inline constexpr int kMaxParts = 3;         // matrices per launch of linear.cu and the gemms
inline constexpr int kMaxGemvParts = 4;     // matrices per launch of gemv.cu
inline constexpr int kMaxExpertsUsed = 32;  // experts per token that gemv.cu can route and combine
inline constexpr int kMaxWarpPairs = 8;     // warp pairs per block of gemv.cu
inline constexpr int kMaxStages = 32;       // pipeline stages of gemv.cu: one lane of a warp issues each copy
inline constexpr int kSplitKWarps = 2;      // warps of a split-K block of gemv.cu, one segment each
// GEMM tiles: M weight rows by N tokens (activation rows; in MoE, token-expert pairs).
inline constexpr int kTileRows = 128;         // M of gemm.cu and gemm_wgmma.cu
inline constexpr int kTileTokens = 64;        // N of gemm.cu
inline constexpr int kFloatTile = 64;         // M and N of gemm_floats.cu
inline constexpr int kWgmmaThreads = 384;     // gemm_wgmma.cu: two consumer warpgroups, one producer
inline constexpr int kWgmmaTokens = 128;      // N of gemm_wgmma.cu
inline constexpr int kWgmmaTokenBytes = 256;  // per token and stage: a segment of int8, or half a segment of bf16
inline constexpr int kSampleSplits = 32;      // blocks that search a row of logits
inline constexpr int kSampleChunk = 64;       // logits per chunk whose maximum is stored
inline constexpr int kSampleThreads = 1024;   // per block of sample_rows

// Index of each count in the step's upload. Index 3 differs from the Vulkan backend, which has kLogitRows there.
enum Count : int {
  kTokens = 0,
  kSeqs = 1,
  kOutputs = 2,
  kSampledRows = 3,                       // rows sampled on the device, the first of the outputs
  kPageTableStride = 4,                   // + page group: columns per sequence in its page table
  kPageTableOffset = 4 + kMaxPageGroups,  // + page group: index of its page table in the upload, in ints
  kCounts = 16
};

// The step's upload: counts, then arrays of the bucket's largest sizes, then the page tables.
struct Step {
  const int* counts;
  const int* tokens;        // [T], -1: the last token sampled by the sequence's slot
  const int* positions;     // [T]
  const int* seq_of_token;  // [T]
  const int* seq_begin;     // [S+1]
  const int* slots;         // [S]
  const int* output_rows;   // [R]
  const int* first_column;  // [page groups, max_seqs]: the first page table column in the upload
  int* last_sampled;        // [slots]
  int max_seqs;
};

// Activations quantized to int8: rows of `stride` bytes, a scale per q8 block of 32 or 256, the sum of each 32.
struct Q8Activation {
  signed char* q;
  float* scale;
  int* sum;
  // For gemm_wgmma.cu; null: unused. Blocks of 32: q as bf16; blocks of 256: the sums as f16.
  unsigned short* wgmma_aux;
  int stride;  // a multiple of kSegmentElems
};

// A matrix, or one per expert, in panels: [expert][panel][segment][piece][row], see format/*.h.
struct Matrix {
  const unsigned char* bytes;
  long long panel_bytes, matrix_bytes;
  int n_in, n_out;
  int n_segments, n_last_groups;  // n_last_groups: quant groups of the last segment
};

struct PackParams {
  const unsigned char* from;  // rows in the file's layout
  unsigned char* to;          // the first panel of these rows
  long long row_bytes, panel_bytes;
  int n_rows, n_in, n_segments;
};

struct EmbedParams {
  Step step;
  Matrix table;
  float* out;
};

// Token-expert pairs, pair = token * n_experts_used + u, sorted by expert and cut into tiles.
struct ExpertTiles {
  int* order;  // [pairs]
  int* tiles;  // [tiles, 3]: expert, first index in `order`, number of pairs
  int* n_tiles;
};

// One input times up to three matrices of equal width and format.
struct LinearParams {
  Matrix parts[kMaxParts];
  float* outs[kMaxParts];
  const float* biases[kMaxParts];         // null: none
  const float* expert_scales[kMaxParts];  // likewise
  int n_parts;
  int act;                // kNoAct, or: parts 0 and 1 are gate and up, outs[0] is act(gate) * up
  const float* residual;  // added to part 0, null: none

  Q8Activation q8;  // x, already quantized; q null: each warp quantizes its input
  const float* x;
  const float* norm_weight;
  float norm_eps;
  int is_normed;  // x is rms-normed first

  const int* n_rows;
  int vectors_per_row;               // inputs of each of the n_rows
  int warps_per_panel;               // a power of two up to kWarps
  int n_row_tiles;                   // of all parts, on tensor cores
  const int* expert_ids;             // [rows, n_experts_used]; null: one matrix for all
  int n_experts_used, x_per_expert;  // x_per_expert: each selected expert has its own input row
  ExpertTiles tiles;                 // of token-expert pairs, for gemm.cu and gemm_wgmma.cu
};

// How gemm_wgmma.cu applies a format's scales.
enum WgmmaKind : int {
  kWgmmaIntegerScales = 0,  // integer scales are multiplied into the weights, as two byte planes
  kWgmmaFloatScales = 1,    // scales are applied to the dot product of each group
  kWgmmaFoldedScales = 2    // power-of-two scales are multiplied into bf16 weights
};
// Its shared memory layout: stages of packed weights, activations and their scales; output rows; mbarriers.
struct WgmmaLayout {
  int groups;  // quant groups per stage
  int panel_bytes, scale_bytes, stage_bytes;
  int n_stages, n_tiles_in_flight;  // n_tiles_in_flight: tiles whose output rows are in shared memory
};
ZINC_HOST_DEVICE WgmmaLayout wgmma_layout(int header_bytes, int group_bytes, int kind) {
  WgmmaLayout w{};
  w.groups = kind == kWgmmaFoldedScales ? kSegmentGroups / 2 : kSegmentGroups;
  w.panel_bytes = kPanelRows * (header_bytes + w.groups * group_bytes);
  w.scale_bytes = kWgmmaTokens * (kind == kWgmmaIntegerScales ? 36 : 8 * w.groups);
  const int n_bytes = kWgmmaTokens * kWgmmaTokenBytes + kTileRows / kPanelRows * w.panel_bytes + w.scale_bytes;
  w.stage_bytes = (n_bytes + 1023) / 1024 * 1024;
  w.n_stages = 4 * w.stage_bytes <= 223 * 1024 ? 4 : 3;
  w.n_tiles_in_flight = w.n_stages + 2;
  return w;
}
ZINC_HOST_DEVICE int wgmma_shared_bytes(const WgmmaLayout& w) {
  return w.n_stages * w.stage_bytes + ((w.n_tiles_in_flight + 2) * kWgmmaTokens + w.n_tiles_in_flight * 5) * 4 +
         2 * w.n_stages * 8 + 8;
}

// The activation rows of gemv.cu.
struct GemvInput {
  Q8Activation q8;  // already quantized; q null: each block quantizes x
  const float* x;
  const float* shared_expert_x;  // the shared expert's row; null: none
  const float* norm_weight;
  const float* gate;  // kGatedHeadsInput: the output gate
  float norm_eps;
  // kNormResidualInput: the row is (residual + norm(x)) * scale, and is stored to residual_out for later launches.
  float post_norm_eps;
  const float* post_norm_weight;  // null: ones
  const float* residual;
  const float* scale;  // null: one
  float* residual_out;
};

// For a launch that routes its token itself, from the split-K partial sums of the router's logits.
struct GemvRouting {
  const float* partial;  // [n_segments][n_experts]; null: experts are already selected
  const float* bias;     // null: none
  int* ids;              // [n_experts_used], stored for later launches
  float* weights;        // likewise
  float routed_scaling_factor;
};

// Router weights of the selected experts; the values of zinc::RouterNormalization.
enum RouterNormalization : int {
  kSoftmaxOverAll = 0,            // not renormalized
  kSoftmaxOverAllNormalized = 1,  // divided by the sum of the selected
  kSoftmaxOfSelected = 2
};

enum Activation : int { kNoAct = -1, kSilu = 0, kGelu = 1, kSigmoid = 2, kSwigluOai = 3 };

// The compile-time shape of a launch of gemv.cu, and its shared memory layout. Host and kernel use the same functions.
enum GemvInputKind : int {
  kPlainInput = 0,
  kNormInput = 1,
  kGatedHeadsInput = 2,
  kQuantizedInput = 3,
  kNormResidualInput = 4
};
ZINC_HOST_DEVICE bool is_normed(int input) { return input == kNormInput || input == kNormResidualInput; }
struct GemvShape {
  int n_in;
  int input;                 // GemvInputKind
  int head_dim, gate_act;    // kGatedHeadsInput: norm per head, then the output gate
  int act;                   // GLU: an output is act(gate) * up; kNoAct: not a GLU
  int n_experts_used;        // MoE gate/up: selected experts, with separate outputs; 0: none
  int n_combined;            // MoE down: selected experts whose weighted sum is the output, an input row each; 0: none
  int has_second_matrix;     // GemvPart::second_matrix: a GLU's up, or the shared expert's down projection
  int n_shared_gate_splits;  // partial sums of the shared expert's gate
  int n_experts;             // > 0: the launch routes its token itself, from the router's partial logits
  int router_normalization;  // RouterNormalization
  int n_parts;
  int n_warp_pairs;
  int cluster_size;             // blocks per cluster; they split the K segments of their panels
  int max_panels;               // per cluster
  int x_bytes, partial_floats;  // shared memory of the input rows, and of partial sums
  int pipeline_bytes;           // shared memory of the weight pipeline, at most
  int n_router_splits;          // partial sums of the router's logits
  // Triggers its dependents after its own PDL wait. The next launch may then read results of launches before this one
  // before it waits.
  int launches_dependents_late;
  // Only after a launch that triggers late, before the PDL wait:
  int reads_before_wait;   // MoE gate/up reads its input row; MoE down reads the router's partial logits
  int routes_before_wait;  // MoE gate/up reads the router's partial logits
  int has_split_k_input;   // split-K parts have their own input row: GemvParams::split_k_x
  int n_panels;            // per selected expert
};
ZINC_HOST_DEVICE int segment_count(int n_in) { return (n_in + kSegmentElems - 1) / kSegmentElems; }
ZINC_HOST_DEVICE int last_segment_groups(int n_in) {
  return (n_in - (segment_count(n_in) - 1) * kSegmentElems + kGroupElems - 1) / kGroupElems;
}
ZINC_HOST_DEVICE int matrices_per_output(const GemvShape& s) {
  if (s.act != kNoAct) return 2;
  return s.n_combined > 0 ? s.n_combined + (s.has_second_matrix ? 1 : 0) : 1;
}
ZINC_HOST_DEVICE int tiles_per_panel(const GemvShape& s) { return matrices_per_output(s) * segment_count(s.n_in); }
ZINC_HOST_DEVICE int max_block_tiles(const GemvShape& s) {
  return (tiles_per_panel(s) + s.cluster_size - 1) / s.cluster_size;
}
// Upper bound of a block's input segments: one more if it shares its first and last with another block.
ZINC_HOST_DEVICE int max_block_segments(const GemvShape& s) {
  const int n = s.act != kNoAct ? 2 : 1;  // tiles per input segment
  return s.cluster_size == 1 ? tiles_per_panel(s) / n : max_block_tiles(s) / n + (n > 1 ? 1 : 0);
}
// An input segment in shared memory: Q8Segment, or floats.
ZINC_HOST_DEVICE int input_segment_bytes(bool is_float) {
  return is_float ? 4 * kSegmentElems : kSegmentElems + 8 * kSegmentGroups;
}
ZINC_HOST_DEVICE int gemv_threads(const GemvShape& s) { return 64 * s.n_warp_pairs; }
ZINC_HOST_DEVICE int panel_segment_bytes(int header_bytes, int group_bytes) {
  return kPanelRows * (header_bytes + kSegmentGroups * group_bytes);
}
// A multiple of the warp pairs if each gets at least two, else all that fit.
ZINC_HOST_DEVICE int pipeline_stages(const GemvShape& s, int segment_bytes) {
  const int fit = s.pipeline_bytes / segment_bytes, n = fit < kMaxStages ? fit : kMaxStages;
  return n < s.n_warp_pairs ? s.n_warp_pairs : n < 2 * s.n_warp_pairs ? n : n / s.n_warp_pairs * s.n_warp_pairs;
}
// Panels reduced together: all of a block's if each row has a thread and the partial sums need at most max_floats
// floats of shared memory; else as many as that allows, at least one.
ZINC_HOST_DEVICE int panels_per_batch(const GemvShape& s) {
  // Without a cluster the partial sums may be double-buffered; with one they do not overlay the norm weights.
  const int max_floats = s.cluster_size > 1 && !(is_normed(s.input) && s.n_in > 8192) ? 8192 : 4096;
  const int rows = kPanelRows / s.cluster_size;  // of a panel, in one block
  const int by_threads = 64 * s.n_warp_pairs / rows, by_floats = max_floats / (tiles_per_panel(s) * rows);
  const int limit = by_threads < by_floats ? by_threads : by_floats;
  return s.max_panels <= limit || s.max_panels == 1 ? s.max_panels : limit < 1 ? 1 : limit;
}
// Of a normed row: one sum per segment, padded.
ZINC_HOST_DEVICE int sums_of_squares_floats(const GemvShape& s) { return (segment_count(s.n_in) + 3) / 4 * 4; }
// Byte offsets in shared memory; the mbarriers come first.
struct GemvSmem {
  int sums_of_squares, norm_weight, x, pipeline;
};
ZINC_HOST_DEVICE int align_128(int n_bytes) { return (n_bytes + 127) / 128 * 128; }
// The partial sums overlay the norm's weights, which are no longer needed by then. Not in a cluster, where another
// block's partial sums may arrive earlier.
ZINC_HOST_DEVICE GemvSmem gemv_smem(const GemvShape& s) {
  const int norm = is_normed(s.input) ? s.n_in : 0, sums = s.partial_floats;
  GemvSmem smem{};
  smem.sums_of_squares = align_128(8 * (2 * kMaxStages + 1));
  smem.norm_weight = smem.sums_of_squares + (norm > 0 ? align_128(4 * 2 * sums_of_squares_floats(s)) : 0);
  smem.x = smem.norm_weight + align_128(4 * (s.cluster_size > 1 ? norm + sums : norm > sums ? norm : sums));
  smem.pipeline = smem.x + align_128(s.x_bytes);
  return smem;
}

// One matrix, or a GLU's gate and up, in a launch of gemv.cu.
struct GemvPart {
  const unsigned char* bytes;
  // Of the same shape as `bytes`: a GLU's up projection, or the shared expert's down projection; null: none.
  const unsigned char* second_matrix;
  float* out;
  const float* bias;
  const float* up_bias;
  const float* expert_scale;
  const float* up_scale;
  const float* residual;  // added to the output; null: none
  long long matrix_bytes;
  int n_out, n_panels;
};
// Consecutive parts of one format; first_block is its first block of the grid. A split-K problem stores its partial
// sums, [n_segments][n_out], without reducing them: its weights are floats, and its n_panels counts segments of panels.
struct GemvProblem {
  int format;  // index in the program's Formats
  int is_split_k;
  int first_part, first_block, n_panels;
  int panels_per_cluster, n_extra;  // per cluster, or per block if split-K; the first n_extra have one more
};

// One activation row times up to kMaxGemvParts matrices of equal width. With n_combined an output is the weighted sum
// of that many experts, with an input row each, and of a shared expert.
struct GemvParams {
  GemvPart parts[kMaxGemvParts];
  GemvProblem problems[kMaxGemvParts];
  GemvInput input;
  GemvRouting route;
  const int* expert_ids;        // [n_experts_used] or [n_combined]
  const float* expert_weights;  // [n_combined]
  const float* shared_gate;     // [n_shared_gate_splits]: their sum gates the shared expert
  const float* split_k_x;       // input row of split-K problems, if has_split_k_input
  int n_parts, n_problems;
};

struct QuantizeParams {
  const float* x;
  Q8Activation out;
  const int* n_rows;
  int vectors_per_row, width, q8_block;  // q8_block: 32 or 256
};

struct NormParams {
  const float* x;
  const float* weight;  // null: none
  float* out;           // null: only q8
  Q8Activation q8;      // q null: none
  const int* n_rows;
  int vectors_per_row, width, q8_block;
  float eps;
  int is_l2;
};

struct RopeTableParams {
  Step step;
  const double* frequencies;  // [n_pairs], radians per position
  float* table;               // [T, n_pairs, 2]: cosine, sine
  int n_pairs;
  float amplitude;
};

struct RopeParams {
  const float* x;
  float* out;
  const float* table;
  const int* n_rows;
  int n_heads, head_dim, n_pairs, adjacent;
};

struct GatedActParams {
  const float* gate;
  const float* up;
  float* out;
  Q8Activation q8;  // q null: none
  const int* n_rows;
  int vectors_per_row, width, q8_block;  // vectors_per_row: rows of `width` per token
  int scalar_gate, act;                  // scalar_gate: one gate value per token
};

// The residual stream between two matmuls: out = (residual + t) * scale, where t is one normed row or the sum of two,
// normed again if has_outer. second_out = norm(out) * second_factor * second_weights.
struct NormResidualParams {
  const float* x[2];
  const float* weights[2];  // norm weights; null: none
  float eps[2];
  const float* outer_weights;
  float outer_eps;
  const float* residual;
  const float* scale;  // [1]; null: none
  float* out;
  float* second_out;  // null: none
  const float* second_norm_weights;
  const float* second_weights;
  float second_eps, second_factor;
  int n_normed, has_outer;
  int width;  // a multiple of 8
  int max_rows;
  const int* n_rows;
};
inline constexpr int kMaxResidualSegments = 4;  // per warp: rows of up to 8192 elements

enum Elementwise : int { kAdd = 0, kMul = 1, kScale = 2, kSoftcap = 3 };
struct ElementwiseParams {
  const float* a;
  const float* b;
  float* out;
  const int* n_rows;
  int width, b_width, op;
  float factor;
};

// Copies `length` elements of each row of from_width into rows of to_width.
struct CopyParams {
  const float* from;
  float* to;
  const int* n_rows;
  const int* row_ids;  // row of `from` for each row of `to`; null: the same row
  int vectors_per_row, from_width, from_begin, to_width, to_begin, length;
};

enum KvFormat : int { kKvF32 = 0, kKvF16 = 1, kKvQ8 = 2, kKvFp8 = 3 };
// Keys and values of one layer in the pages of its page group.
struct KvLayer {
  unsigned char* pages;               // the layer's part of page 0
  long long page_bytes;               // from page to page
  int head_bytes, value_begin;        // per head; offset of its values
  int kv_heads, k_dim, v_dim, group;  // group: page group
};

struct KvWriteParams {
  Step step;
  KvLayer kv;
  const float* k;
  const float* v;
};

// Index of HeadInput parts.
enum QkvIndex : int { kQuery = 0, kKey = 1, kValue = 2 };

// The heads of q, k or v before attention, with an optional norm and RoPE.
struct HeadInput {
  const float* x;  // null: none
  const float* norm_weight;
  const float* table;  // RoPE table; null: none
  int n_heads, dim, n_pairs, adjacent, is_normed;
  int stride;  // floats from head to head
  float eps;
};

// Keys and values are written to the KV cache, queries to q_out.
struct HeadsParams {
  Step step;
  KvLayer kv;
  HeadInput parts[3];  // by QkvIndex
  float* q_out;
};

// partial: [rows, n_chunks, v_dim + 2]; in attention_decode.cu [heads, n_chunks, partial_row_floats(v_dim)].
struct AttentionParams {
  Step step;
  KvLayer kv;
  const float* q;
  const float* sinks;  // null: none
  float* out;
  Q8Activation q8;  // of out, by merge_chunks; q null: none
  float* partial;   // split-KV partials; null: each block has all chunks of its rows
  int n_heads, heads_per_tile, tokens_per_tile, n_chunks, q8_block;
  float scale, softcap;
  int window;
};

// Decode attention, fused: norm and RoPE of the heads, KV cache write, split-KV attention, and the merge of its chunks
// by the last block that finishes a head.
struct AttentionDecodeParams {
  AttentionParams attention;
  HeadInput parts[3];  // by QkvIndex
  const float* gate;   // output gate: gated(act, gate, result); null: none
  int gate_stride, act;
  int* done_counters;  // [heads]: finished blocks of each head tile; zero between launches
};

// The elements of a RoPE pair: adjacent (GPT-J), or n_pairs apart (NeoX) with n_pairs a multiple of 8, or any n_pairs.
enum RopeLayout : int { kRopeAdjacent = 0, kRopeHalvesVec8 = 1, kRopeHalvesRagged = 2 };

// The compile-time shape of attention_decode.cu, and its shared memory.
struct AttentionDecodeShape {
  int kv_format;  // KvFormat, of 16 or 8 bits
  int k_dim, v_dim;
  int heads_per_kv_head;
  int tile_heads;  // query heads per block, at most 6
  int window, has_softcap;
  int has_keys;     // the layer has its own keys and values
  int act;          // of the output gate; kNoAct: none
  int rope_layout;  // RopeLayout
};
// Warps per KV tile: one for each 64 dimensions, a power of two; 0: too many dimensions.
ZINC_HOST_DEVICE int warps_per_kv_tile(int k_dim, int v_dim) {
  for (int n = 1; n <= kWarps; n *= 2) {
    if (k_dim <= 64 * n && v_dim <= 64 * n) return n;
  }
  return 0;
}
ZINC_HOST_DEVICE int warps_per_kv_tile(const AttentionDecodeShape& s) { return warps_per_kv_tile(s.k_dim, s.v_dim); }
// The compile-time shape of attention_mma.cu.
struct AttentionMmaShape {
  int kv_format;  // KvFormat, of 16 or 8 bits
  int n_warps;    // warps_per_kv_tile()
  int n_sets;     // sets of 16 query rows per warp group in attention_prefill
};
// A lane's accumulator over all chunks of a row set: in registers if eight warps share the scores of a tile.
inline constexpr int kAccumulatorFloats = 36;
ZINC_HOST_DEVICE bool accumulates_in_registers(int n_warps) { return n_warps >= 8; }

// A row's split-KV partial of one chunk: max, sum, two spare floats, values.
ZINC_HOST_DEVICE int partial_row_floats(int v_dim) { return 4 + (v_dim + 3) / 4 * 4; }
ZINC_HOST_DEVICE int head_row_floats(const AttentionDecodeShape& s) {
  return ((s.k_dim > s.v_dim ? s.k_dim : s.v_dim) + 31) / 32 * 32;
}
// A KV tile in f16, padded against bank conflicts (SmemKv).
ZINC_HOST_DEVICE int kv_tile_bytes(int k_dim, int v_dim) {
  return 2 * ((k_dim + 31) / 32 * 4) * (kPageTokens * 16 + 32) + 64 * ((v_dim + 63) / 64 * 128 + 32);
}
// KV tiles in shared memory at once: as many as leave space for the next kernel's block, at most a chunk's.
ZINC_HOST_DEVICE int kv_tiles_in_flight(const AttentionDecodeShape& s) {
  const int fit = (80 << 10) / kv_tile_bytes(s.k_dim, s.v_dim), n_warp_groups = kWarps / warps_per_kv_tile(s);
  const int n = fit < n_warp_groups ? fit : n_warp_groups;
  return n < 1 ? 1 : n > 4 ? 4 : n == 3 ? 2 : n;
}
ZINC_HOST_DEVICE int attention_decode_smem_bytes(const AttentionDecodeShape& s) {
  const int n_tiles = kv_tiles_in_flight(s);
  const int floats = (s.tile_heads + 2) * head_row_floats(s) + 16 * ((s.k_dim + 31) / 32 * 16 + 4) +
                     n_tiles * (16 * 36 + 32 * warps_per_kv_tile(s)) +
                     s.tile_heads * 4 * ((s.v_dim + 31) / 32 * 32 + 8 + 2);
  return align_128(4 * floats + n_tiles * kv_tile_bytes(s.k_dim, s.v_dim));
}

struct RouteParams {
  const float* logits;
  int* ids;
  float* weights;
  const int* n_rows;
  int n_experts, n_experts_used, router_normalization;  // router_normalization: RouterNormalization
  float routed_scaling_factor;
};

struct SortByExpertParams {
  const int* ids;  // [rows, n_experts_used]
  const int* n_rows;
  int n_experts_used, n_experts;
  int tile_tokens;  // token-expert pairs per tile, at most
  ExpertTiles out;
};

struct CombineParams {
  const float* x;
  const float* weights;
  float* out;
  const int* n_rows;
  int n_experts_used, dim;
};

struct ConvParams {
  Step step;
  const float* x;
  const float* weight;  // [channels, taps]
  float* out;
  float* states;  // of slot 0: [taps, channels], position p at p % taps
  long long slot_floats;
  int n_channels, n_taps;
};

enum DeltaTokens : int { kAllTokens = 0, kBeforeChunks = 1, kAfterChunks = 2 };
struct DeltaParams {
  Step step;
  const float* q;
  const float* k;
  const float* v;
  const float* alpha;
  const float* beta;
  const float* dt_bias;
  const float* a;
  float* out;
  float* states;  // of slot 0
  long long slot_floats;
  float* prepared;  // [chunk, v_heads]: PreparedChunk of recurrent_chunks.cu
  int k_heads, v_heads, k_dim, v_dim, is_cyclic;
  float q_scale;
  int part;  // DeltaTokens: the tokens that the token-by-token kernel handles
};

// Decode of a gated delta layer, fused with its short convolution: channels of q, k and v one after the other, q and k
// L2-normed per head.
struct DeltaDecodeParams {
  DeltaParams delta;  // q, k and v are unused: the kernel computes them
  ConvParams conv;
  float norm_eps;
};

// Sampling parameters of a row in the step's upload: floats by their bits.
enum SamplingField : int {
  kInvTemperature = 0,
  kTopK = 1,
  kTopP = 2,
  kLogMinP = 3,
  kUniformLow = 4,
  kUniformHigh = 5,
  kSamplingInts = 6
};
struct SampleParams {
  Step step;
  const int* sampling;  // [kSampledRows rows, kSamplingInts]; an inverse temperature of 0: greedy
  const float* logits;
  float* chunk_best;                 // [rows, chunks], of sampled rows
  int* chunks;                       // likewise
  unsigned long long* chunk_masses;  // likewise
  float* best;                       // [R, kSampleSplits]
  int* best_id;                      // likewise
  int* sampled;                      // [R]
  int vocab;
};

struct ReadParams {
  const unsigned char* bytes;
  long long n_bytes;
  int* sum;
};

}  // namespace zinc::simt
