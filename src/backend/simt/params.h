// What each kernel is given, by value: plain structs read by the host that launches and by the device code alike.
// Counts that change from step to step are pointers into the step's upload; everything else is fixed when a plan is
// compiled.
#pragma once

#ifdef __CUDACC__
#define ZINC_BOTH __host__ __device__ constexpr  // for the host and for kernels
#else
#define ZINC_BOTH constexpr
#endif

namespace zinc::simt {

inline constexpr int kPanelRows = 32;      // weight rows that lie interleaved, one per lane
inline constexpr int kSegmentElems = 256;  // inputs whose products are summed before anything else is added to them
inline constexpr int kGroupElems = 32;     // inputs of a segment that are loaded together
inline constexpr int kSegmentGroups = 8;   // groups of a segment
inline constexpr int kThreads = 256;       // of a block
inline constexpr int kWarps = kThreads / 32;
inline constexpr int kPagePositions = 32;    // positions of a KV page
inline constexpr int kChunkPositions = 256;  // positions whose attention is summed before it is merged with others
inline constexpr int kAttentionRows = 8;     // query rows of one block
inline constexpr int kMaxGroups = 4;         // page groups of a model
inline constexpr int kMaxTaps = 8;           // of a short convolution
inline constexpr int kMaxExperts = 1024;
inline constexpr int kDeltaChunk = 64;      // tokens of the gated delta rule taken together
inline constexpr int kDeltaColumns = 32;    // of a state, in one block
inline constexpr int kConvTokens = 64;      // of a short convolution, in one block
inline constexpr int kMaxParts = 3;         // matrices multiplied in one launch
inline constexpr int kMaxProductParts = 4;  // likewise, for a step of one row
inline constexpr int kMaxUsed = 32;         // experts of a token that are found and mixed within one launch
inline constexpr int kMaxPairs = 8;         // pairs of warps that multiply, in a block of product.cu
inline constexpr int kMaxSlots = 32;        // segments on their way to them: a lane of a warp asks for each
inline constexpr int kSpreadUnits = 2;      // segments of floats a block of it takes
inline constexpr int kTileRows = 128;       // weight rows and activations of a block on matrix cores
inline constexpr int kTileColumns = 64;
inline constexpr int kFloatTile = 64;     // weight rows and activations of a block of gemm_floats.cu
inline constexpr int kWideThreads = 384;  // of a block of gemm_wide.cu: two groups that multiply, one that copies
inline constexpr int kWideColumns = 128;  // its activations
inline constexpr int kWideBytes = 256;  // of each column in one of its stages: a segment of bytes or half one of halves
inline constexpr int kSampleSplits = 32;   // parts of a row of logits searched at once
inline constexpr int kSampleChunk = 64;    // logits of which the best is remembered
inline constexpr int kDrawThreads = 1024;  // of a block that draws a token

// Where the counts of a step lie in its upload.
enum Count : int {
  kTokens = 0,
  kSeqs = 1,
  kOutputs = 2,
  kDraws = 3,
  kStride = 4,
  kEntries = 4 + kMaxGroups,
  kCounts = 16
};

// The step's upload: counts, then arrays of the bucket's largest sizes, then the page tables.
struct Step {
  const int* counts;
  const int* tokens;        // [T], -1: what the sequence's slot sampled last
  const int* positions;     // [T]
  const int* seq_of_token;  // [T]
  const int* seq_begin;     // [S+1]
  const int* slots;         // [S]
  const int* output_rows;   // [R]
  const int* first_column;  // [groups, max_seqs]: the page table column that comes first in the upload
  int* last_sampled;        // [slots]
  int max_seqs;
};

// Activations rounded to 8 bits: rows of `stride` bytes, one scale for each 32 or 256 of them, and the sum of each 32.
struct Rounded {
  signed char* q;
  float* scale;
  int* sum;
  unsigned short* wide;  // for gemm_wide.cu, null: not needed. Of blocks of 32: q as bf16; of 256: the sums as halves
  int stride;            // a multiple of kSegmentElems
};

// A stack of matrices in panels: [stack][panel][segment][piece][row], see format/*.h.
struct Matrix {
  const unsigned char* bytes;
  long long panel_bytes, matrix_bytes;
  int n_in, n_out;
  int n_segments, n_last_groups;  // groups of the last segment
};

struct PackParams {
  const unsigned char* from;  // rows as they lie in the file
  unsigned char* to;          // the first panel of these rows
  long long row_bytes, panel_bytes;
  int n_rows, n_in, n_segments;
};

struct EmbedParams {
  Step step;
  Matrix table;
  float* out;
};

// Pairs of a row and an expert it uses, pair = row * n_used + u, brought together by expert and cut into tiles.
struct ExpertTiles {
  int* order;  // [pairs]
  int* tiles;  // [tiles, 3]: expert, its first place in `order`, number of pairs
  int* n_tiles;
};

// Products of one input with up to three matrices of equal width and format.
struct LinearParams {
  Matrix parts[kMaxParts];
  float* outs[kMaxParts];
  const float* biases[kMaxParts];         // null: none
  const float* expert_scales[kMaxParts];  // likewise
  int n_parts;
  int act;             // kNoAct, or: parts 0 and 1 are gate and up, outs[0] is act(gate) * up
  const float* added;  // a residual of part 0, null: none

  Rounded rounded;  // x rounded beforehand; q null: each warp rounds what it reads
  const float* x;
  const float* norm_weight;
  float norm_eps;
  int is_normed;  // x is rms-normed first

  const int* n_rows;
  int per_row;             // inputs of each of the n_rows
  int warps_per_panel;     // a power of two up to kWarps
  int n_row_tiles;         // of all parts, on matrix cores
  const int* expert_ids;   // [rows, n_used]; null: one matrix for all
  int n_used, x_per_used;  // x_per_used: each used expert has an input of its own
  ExpertTiles tiles;       // of the pairs of rows and experts, where many rows use experts
};

// What gemm_wide.cu does with a format's scales.
enum WideKind : int {
  kWideIntegers = 0,  // multiplies integers into numbers of 8 bits, in two planes
  kWideFloats = 1,    // applies them to sums of 32
  kWideFolded = 2     // multiplies powers of two into bf16 numbers
};
// How it divides its shared memory: stages of weights as they lie, columns and their scales; places and barriers.
struct WideLayout {
  int groups;  // of a stage
  int panel_bytes, scale_bytes, stage_bytes;
  int n_stages, n_tiles;  // n_tiles: whose places are remembered
};
ZINC_BOTH WideLayout wide_layout(int header_bytes, int group_bytes, int kind) {
  WideLayout w{};
  w.groups = kind == kWideFolded ? kSegmentGroups / 2 : kSegmentGroups;
  w.panel_bytes = kPanelRows * (header_bytes + w.groups * group_bytes);
  w.scale_bytes = kWideColumns * (kind == kWideIntegers ? 36 : 8 * w.groups);
  const int n_bytes = kWideColumns * kWideBytes + kTileRows / kPanelRows * w.panel_bytes + w.scale_bytes;
  w.stage_bytes = (n_bytes + 1023) / 1024 * 1024;
  w.n_stages = 4 * w.stage_bytes <= 223 * 1024 ? 4 : 3;
  w.n_tiles = w.n_stages + 2;
  return w;
}
ZINC_BOTH int wide_shared_bytes(const WideLayout& w) {
  return w.n_stages * w.stage_bytes + ((w.n_tiles + 2) * kWideColumns + w.n_tiles * 5) * 4 + 2 * w.n_stages * 8 + 8;
}

// Where the rows that product.cu multiplies come from.
struct RowSource {
  Rounded rounded;  // rounded beforehand; q null: each block rounds x
  const float* x;
  const float* last_x;  // the last row, if it lies apart; null: none
  const float* norm_weight;
  const float* gate;  // of kHeadsRow
  float norm_eps;
  // Of kSummedRow: the row is (residual + x normed) * scale. Left in `sum` for whoever comes later.
  float sum_eps;
  const float* sum_weight;  // of x's norm; null: ones
  const float* residual;
  const float* scale;  // null: one
  float* sum;
};

// How a launch finds its experts by itself: from the segments of the router's logits.
struct RouteSource {
  const float* partial;  // [n_segments][n_experts]; null: no
  const float* bias;     // null: none
  int* ids;              // [n_used], for whoever comes later
  float* weights;        // likewise
  float scale;
};

enum Activation : int { kNoAct = -1, kSilu = 0, kGelu = 1, kSigmoid = 2, kSwigluOai = 3 };

// What a launch of product.cu is compiled for, and how its shared memory is divided: the host and the kernel reckon
// with the same functions.
enum InputKind : int { kPlainRow = 0, kNormedRow = 1, kHeadsRow = 2, kRoundedRow = 3, kSummedRow = 4 };
ZINC_BOTH bool is_normed(int input) { return input == kNormedRow || input == kSummedRow; }
struct ProductShape {
  int n_in;
  int input;               // InputKind
  int head_dim, gate_act;  // of kHeadsRow: a norm of each head, and the result gated
  int act;                 // an output is act(first term) * second term; kNoAct: no
  int n_used;              // experts whose results stay apart; 0: none
  int n_mixed;             // experts whose weighted sum is the result, each with a row of its own; 0: none
  int has_last;            // a last matrix: the gate's other one, the shared expert's
  int n_gates;             // segments of the shared expert's gate
  int n_experts;           // of the router whose logits' segments the launch adds up itself; 0: it does not
  int route_mode;
  int n_parts;                  // of the launch
  int n_pairs;                  // of warps
  int n_ranks;                  // blocks of a cluster, which share out the segments of their panels
  int most_panels;              // of a cluster
  int x_bytes, partial_floats;  // shared memory of its rows and of segments' sums
  int ring_bytes;               // and of segments on their way, at most
  int n_route_segments;         // of the router's logits
  int starts_next_late;         // when its own wait is over: the next launch may read what came before this one
  int is_early;                 // the launch before it does: experts' row, or a mix's logits, are there before the wait
  int finds_early;              // experts: the logits are there before the wait too
  int spreads_other;            // what is spread reads a row of its own, as it is: ProductParams::spread_x
  int n_panels;                 // of each of the n_used
};
ZINC_BOTH int segments_of(int n_in) { return (n_in + kSegmentElems - 1) / kSegmentElems; }
ZINC_BOTH int last_groups_of(int n_in) {
  return (n_in - (segments_of(n_in) - 1) * kSegmentElems + kGroupElems - 1) / kGroupElems;
}
// Matrices that an output is made of.
ZINC_BOTH int terms_of(const ProductShape& s) {
  if (s.act != kNoAct) return 2;
  return s.n_mixed > 0 ? s.n_mixed + (s.has_last ? 1 : 0) : 1;
}
ZINC_BOTH int units_of(const ProductShape& s) { return terms_of(s) * segments_of(s.n_in); }
ZINC_BOTH int most_rank_units(const ProductShape& s) { return (units_of(s) + s.n_ranks - 1) / s.n_ranks; }
// Segments of the rows that a block multiplies with, at most: one more where its first and last are half another's.
ZINC_BOTH int most_rank_inputs(const ProductShape& s) {
  const int n = s.act != kNoAct ? 2 : 1;  // units to each
  return s.n_ranks == 1 ? units_of(s) / n : most_rank_units(s) / n + (n > 1 ? 1 : 0);
}
// Of a row in shared memory: simt::SharedX, or plain.
ZINC_BOTH int row_segment_bytes(bool is_float) {
  return is_float ? 4 * kSegmentElems : kSegmentElems + 8 * kSegmentGroups;
}
ZINC_BOTH int product_threads(const ProductShape& s) { return 64 * s.n_pairs; }
ZINC_BOTH int panel_segment_bytes(int header_bytes, int group_bytes) {
  return kPanelRows * (header_bytes + kSegmentGroups * group_bytes);
}
// Segments on their way: as many to each pair if that is two at least, else all there is room for.
ZINC_BOTH int slots_of(const ProductShape& s, int segment_bytes) {
  const int room = s.ring_bytes / segment_bytes, n = room < kMaxSlots ? room : kMaxSlots;
  return n < s.n_pairs ? s.n_pairs : n < 2 * s.n_pairs ? n : n / s.n_pairs * s.n_pairs;
}
// Panels whose sums are finished together, a thread for each row: all of a block's, or about as many units as keep all
// pairs busy for a while.
ZINC_BOTH int batch_panels(const ProductShape& s) {
  // Others than clusters may need the room twice, and clusters have a norm's weights beside it.
  const int most_floats = s.n_ranks > 1 && !(is_normed(s.input) && s.n_in > 8192) ? 8192 : 4096;
  const int rows = kPanelRows / s.n_ranks;  // of a panel, in one block
  const int most_rows = 64 * s.n_pairs / rows, most_sums = most_floats / (units_of(s) * rows);
  const int most = most_rows < most_sums ? most_rows : most_sums;
  return s.most_panels <= most || s.most_panels == 1 ? s.most_panels : most < 1 ? 1 : most;
}
ZINC_BOTH int squares_floats(const ProductShape& s) { return (segments_of(s.n_in) + 3) / 4 * 4; }  // of a normed row
struct ProductRoom {
  int squares, norm, x, ring;
};
ZINC_BOTH int in_lines(int n_bytes) { return (n_bytes + 127) / 128 * 128; }
// The norm's weights and the sums have one place: the former are done with when the latter come. Not so in a cluster,
// where another block's sums may come earlier.
ZINC_BOTH ProductRoom room_of(const ProductShape& s) {
  const int norm = is_normed(s.input) ? s.n_in : 0, sums = s.partial_floats;
  ProductRoom room{};
  room.squares = in_lines(8 * (2 * kMaxSlots + 1));  // behind the gates
  room.norm = room.squares + (norm > 0 ? in_lines(4 * 2 * squares_floats(s)) : 0);
  room.x = room.norm + in_lines(4 * (s.n_ranks > 1 ? norm + sums : norm > sums ? norm : sums));
  room.ring = room.x + in_lines(s.x_bytes);
  return room;
}

// One matrix, or a gate's two, in a launch for a step of one row (product.cu).
struct ProductPart {
  const unsigned char* bytes;
  const unsigned char* last;  // the matrix of the last term, of the same shape; null: none
  float* out;
  const float* bias;
  const float* last_bias;
  const float* expert_scale;
  const float* last_scale;
  const float* added;  // null: none
  long long matrix_bytes;
  int n_out, n_panels;
};
// Parts of one format, one after the other, in blocks from first_block on. A spread class leaves the sums of segments
// as they are, [n_segments][n_out]: its parts are floats, and what is counted as panels are segments of them.
struct ProductClass {
  int format;  // which of the program's
  int is_spread;
  int first_part, first_block, n_panels;
  int each, n_more;  // panels of every cluster, or of every block of a spread class; the first n_more have one more
};

// Products of one row with up to kMaxProductParts matrices of equal width. With n_mixed an output is the weighted sum
// of so many experts', each with a row of its own, and of a shared expert's.
struct ProductParams {
  ProductPart parts[kMaxProductParts];
  ProductClass classes[kMaxProductParts];
  RowSource source;
  RouteSource route;
  const int* expert_ids;     // [n_used or n_mixed]
  const float* mix_weights;  // [n_mixed]
  const float* shared_gate;  // the shared expert's result is gated by the sum of these
  const float* spread_x;     // the row of a spread class, if it has its own
  int n_parts, n_classes;
};

struct RoundParams {
  const float* x;
  Rounded out;
  const int* n_rows;
  int per_row, width, block;  // block: 32 or 256
};

struct NormParams {
  const float* x;
  const float* weight;  // null: none
  float* out;           // null: only rounded
  Rounded rounded;      // q null: none
  const int* n_rows;
  int per_row, width, block;
  float eps;
  int is_l2;
};

struct RopeTableParams {
  Step step;
  const double* frequencies;  // [n_pairs] radians a position
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
  Rounded rounded;  // q null: none
  const int* n_rows;
  int per_row, width, block;  // rows of `width` within one of the n_rows
  int one_gate, act;          // one_gate: the n_rows' rows have one gate each
};

// The residual stream between two products: out = (residual + t) * scale, where t is one row normed, or two normed rows
// added up, and t normed once more if has_outer. branch = out normed * factor * weights.
struct AddNormedParams {
  const float* x[2];
  const float* weights[2];  // of their norms; null: none
  float eps[2];
  const float* outer_weights;
  float outer_eps;
  const float* residual;
  const float* scale;  // one number; null: none
  float* out;
  float* branch;  // null: none
  const float* branch_norm_weights;
  const float* branch_weights;
  float branch_eps, branch_factor;
  int n_normed, has_outer;
  int width;  // a multiple of 8
  int most_rows;
  const int* n_rows;
};
inline constexpr int kMostStreamSegments = 4;  // of a warp: rows of up to 8192 numbers

enum Elementwise : int { kAdd = 0, kMul = 1, kScale = 2, kSoftcap = 3 };
struct ElementwiseParams {
  const float* a;
  const float* b;
  float* out;
  const int* n_rows;
  int width, b_width, op;
  float factor;
};

// Copies `length` numbers of each row of from_width into rows of to_width.
struct CopyParams {
  const float* from;
  float* to;
  const int* n_rows;
  const int* row_ids;  // which row of `from` each row of `to` is; null: the same
  int per_row, from_width, from_begin, to_width, to_begin, length;
};

enum KvFormat : int { kKvF32 = 0, kKvF16 = 1, kKvQ8 = 2, kKvFp8 = 3 };
// Keys and values of one layer in its group's pages.
struct KvLayer {
  unsigned char* pages;         // the layer's part of page 0; those of the others follow
  long long page_bytes;         // of such a part
  int head_bytes, value_begin;  // of a head; where its values begin in it
  int kv_heads, k_dim, v_dim, group;
};

struct KvWriteParams {
  Step step;
  KvLayer kv;
  const float* k;
  const float* v;
};

// What happens to the heads of q, k or v before attention: a norm, a rotation, both or none.
struct HeadPart {
  const float* x;  // null: no such part
  const float* norm_weight;
  const float* table;  // of the rotation; null: none
  int n_heads, dim, n_pairs, adjacent, is_normed;
  int stride;  // floats from head to head
  float eps;
};

// Keys and values go to the cache, queries to q_out.
struct HeadsParams {
  Step step;
  KvLayer kv;
  HeadPart parts[3];
  float* q_out;
};

struct AttentionParams {
  Step step;
  KvLayer kv;
  const float* q;
  const float* sinks;  // null: none
  float* out;
  Rounded rounded;  // of out, by merge_chunks; q null: none
  float* partial;   // [rows, n_chunks, v_dim + 2]; null: a block merges its chunks itself
  int n_heads, heads_per_tile, tokens_per_tile, n_chunks, block;
  float scale, softcap;
  int window;
};

// All of attention for a step of one token: heads made ready, keys and values written, chunks attended to and merged by
// the last of the blocks that share a head.
struct AttendOneParams {
  AttentionParams attention;
  HeadPart parts[3];
  const float* gate;  // the result is gated(act, gate, result); null: none
  int gate_stride, act;
  int* n_done;  // [heads], of which a tile has one; zero between launches
};

// Which numbers a rotation takes together: neighbours; those n_pairs apart, n_pairs a multiple of eight; or any number
// of pairs of them.
enum TurnKind : int { kTurnPairs = 0, kTurnEights = 1, kTurnRagged = 2 };

// What a launch of attend_one.cu is compiled for, and its shared memory.
struct AttendShape {
  int kv_format;  // KvFormat, of 16 or 8 bits
  int k_dim, v_dim;
  int group_heads;  // that share a key head
  int tile_heads;   // of a block, at most 6
  int window, has_softcap;
  int has_keys;  // the layer has keys and values of its own
  int act;       // of the gate behind; kNoAct: none
  int turn;      // TurnKind
};
// Warps that share a unit: one for each 64 dimensions, a power of two; 0: too many dimensions.
ZINC_BOTH int warps_of_unit(int k_dim, int v_dim) {
  for (int n = 1; n <= kWarps; n *= 2) {
    if (k_dim <= 64 * n && v_dim <= 64 * n) return n;
  }
  return 0;
}
ZINC_BOTH int warps_of_unit(const AttendShape& s) { return warps_of_unit(s.k_dim, s.v_dim); }
// What a program of attention_units.cu is compiled for.
struct UnitShape {
  int kv_format;  // KvFormat, of 16 or 8 bits
  int n_warps;    // warps_of_unit()
  int n_sets;     // of 16 rows that a group of warps has in attend_rows
};
// Results over all chunks of a lane's rows of a set: registers suffice where a warp has few positions' scores.
inline constexpr int kTotalFloats = 36;
ZINC_BOTH bool total_in_registers(int n_warps) { return n_warps >= 8; }

// Floats of a row's result of one chunk: largest and sum, two more, the values.
ZINC_BOTH int partial_row(int v_dim) { return 4 + (v_dim + 3) / 4 * 4; }
ZINC_BOTH int attend_head_floats(const AttendShape& s) {
  return ((s.k_dim > s.v_dim ? s.k_dim : s.v_dim) + 31) / 32 * 32;
}
// A unit's keys and values as halves, with the gaps that keep lanes in different banks (InShared).
ZINC_BOTH int unit_bytes(int k_dim, int v_dim) {
  return 2 * ((k_dim + 31) / 32 * 4) * (kPagePositions * 16 + 32) + 64 * ((v_dim + 63) / 64 * 128 + 32);
}
// Units in shared memory at once: as many as leave room for the next kernel's block, at most a chunk's.
ZINC_BOTH int units_at_once(const AttendShape& s) {
  const int fit = (80 << 10) / unit_bytes(s.k_dim, s.v_dim), most = kWarps / warps_of_unit(s);
  const int n = fit < most ? fit : most;
  return n < 1 ? 1 : n > 4 ? 4 : n == 3 ? 2 : n;
}
ZINC_BOTH int attend_room_bytes(const AttendShape& s) {
  const int groups = units_at_once(s);
  const int floats = (s.tile_heads + 2) * attend_head_floats(s) + 16 * ((s.k_dim + 31) / 32 * 16 + 4) +
                     groups * (16 * 36 + 32 * warps_of_unit(s)) + s.tile_heads * 4 * ((s.v_dim + 31) / 32 * 32 + 8 + 2);
  return in_lines(4 * floats + groups * unit_bytes(s.k_dim, s.v_dim));
}

struct RouteParams {
  const float* logits;
  int* ids;
  float* weights;
  const int* n_rows;
  int n_experts, n_used, mode;  // 0 softmax, 1 normalised, 2 of the chosen
  float scale;
};

struct GroupPairsParams {
  const int* ids;  // [rows, n_used]
  const int* n_rows;
  int n_used, n_experts;
  int tile_columns;  // pairs of a tile, at most
  ExpertTiles out;
};

struct CombineParams {
  const float* x;
  const float* weights;
  float* out;
  const int* n_rows;
  int n_used, dim;
};

struct ConvParams {
  Step step;
  const float* x;
  const float* weight;  // [channels, taps]
  float* out;
  float* states;  // of slot 0: [taps, channels], the input of position p at p % taps
  long long slot_floats;
  int n_channels, n_taps;
};

enum DeltaPart : int { kAllTokens = 0, kBeforeChunks = 1, kAfterChunks = 2 };
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
  float*
      prepared;  // of chunks: [chunk, v_heads] of kDeltaChunk rows each of keys, values and weights of earlier tokens
  int k_heads, v_heads, k_dim, v_dim, is_cyclic;
  float q_scale;
  int part;  // of the tokens, by the kernel that takes one after the other
};

// A token's step of a gated delta layer, from the inputs of its convolution on: channels of q, k and v one after the
// other, q and k l2-normed by heads.
struct DeltaOneParams {
  DeltaParams delta;  // q, k and v are made here
  ConvParams conv;
  float norm_eps;
};

// How a row's token is drawn, as it lies in the step's upload: floats by their bits.
enum DrawField : int {
  kInvTemperature = 0,
  kTopK = 1,
  kTopP = 2,
  kLogMinP = 3,
  kShareLow = 4,
  kShareHigh = 5,
  kDrawInts = 6
};
struct SampleParams {
  Step step;
  const int* draws;  // [kDraws rows, kDrawInts]; an inverse temperature of 0: the best one
  const float* logits;
  float* chunk_best;                 // [rows, chunks], of rows with draws
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
