// All of attention for a step of one token: heads made ready, keys and values written, chunks attended to in units
// (attention_mma.h) and merged by the last of the blocks that share a head. A program of this file begins with kShape:
// what it is compiled for. Everything of earlier tokens, and all weights, are there before the block waits for this
// one's.
#include "backend/simt/attention_heads.h"
#include "backend/simt/attention_mma.h"

namespace zinc::simt {

template <int format>
struct KvOf;
template <>
struct KvOf<kKvF16> {
  using Type = KvF16;
};
template <>
struct KvOf<kKvQ8> {
  using Type = KvQ8;
};
using Kv = KvOf<kShape.kv_format>::Type;

constexpr int kKeyDim = kShape.k_dim, kValueDim = kShape.v_dim, kRows = kShape.tile_heads;
constexpr int kKeyBlocks = (kKeyDim + 31) / 32, kValueRow = (kValueDim + 31) / 32 * 32;
constexpr int kGroupWarps = warps_of_unit(kShape), kGroups = units_at_once(kShape), kTiles = 8 / kGroupWarps;
constexpr int kHeadRow = attend_head_floats(kShape), kQueryStride = kKeyBlocks * 16 + 4;
constexpr int kPairs = (kHeadRow + 63) / 64;  // of a head's numbers, for each lane
// Results: warps that share a row, neighbouring numbers of a lane, and how many of these it has.
constexpr int kRowWarps = kWarps / kRows, kWide = kValueDim % 2 == 0 ? 2 : 1, kTurn = kRowWarps * 32 * kWide;
constexpr int kWidth = kValueDim + 2;  // of a row of partial results
constexpr int kOuts = (kValueDim + kTurn - 1) / kTurn;
static_assert(kRows <= 6, "a warp for each head, two for the key and the value; eight rows of a unit");

// Shared memory of a block.
struct OneRoom {
  u8 units[kGroups][unit_bytes(kKeyDim, kValueDim)];
  float heads[kRows + 2][kHeadRow];  // queries, the key, the value
  u32 q[kUnitRows * kQueryStride];   // queries as halves
  u32 weights[kGroups][kUnitRows * (kWeightStride / 2)];
  float exchange[kGroups][2 * kGroupWarps * kUnitRows];
  float values[kChunkUnits][kRows][kValueRow];  // results of units
  Running runs[kChunkUnits][kRows];
};
static_assert(sizeof(OneRoom) <= attend_room_bytes(kShape));

// Read past the first-level cache: it may hold what was there before the wait.
ZINC_DEVICE Eight load_fresh(const float* row, int at, int dim) {
  if (at + 8 <= dim) {
    const float4 a = __ldcg(reinterpret_cast<const float4*>(row + at));
    const float4 b = __ldcg(reinterpret_cast<const float4*>(row + at + 4));
    return {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
  }
  Eight out = {{0, 0, 0, 0, 0, 0, 0, 0}};
  if constexpr (kKeyDim % 8 != 0 || kValueDim % 8 != 0) {
    for (int i = 0; i < 8; ++i) out.v[i] = at + i < dim ? __ldcg(row + at + i) : 0.0f;
  }
  return out;
}

// A warp's head on its way in, normed and turned as prepare_heads does it: pairs of numbers, those turned together
// first.
struct OneHead {
  static constexpr bool kIsWhole = kKeyDim == kValueDim && kKeyDim % 64 == 0;  // all lanes have all their pairs
  const HeadPart& part;
  const float* from;
  int n_turned;         // of the pairs
  int at[kPairs][2];    // places
  float2 norm[kPairs];  // weights

  // What nobody in this step writes; and the table of the rotation comes nearer.
  ZINC_DEVICE OneHead(const HeadPart& its_part, int head)
      : part(its_part), from(its_part.x + head * its_part.stride), n_turned(its_part.n_pairs) {
    const int apart = part.adjacent ? 1 : n_turned, step = part.adjacent ? 2 : 1;
    const bool has_norm = part.is_normed && part.norm_weight;
#pragma unroll
    for (int j = 0; j < kPairs; ++j) {
      const int pair = j * 32 + lane_id();
      at[j][0] = pair < n_turned ? pair * step : 2 * pair;
      at[j][1] = at[j][0] + (pair < n_turned ? apart : 1);
      norm[j] = make_float2(1, 1);
      if (has_norm && has(j, 0)) norm[j].x = part.norm_weight[at[j][0]];
      if (has_norm && has(j, 1)) norm[j].y = part.norm_weight[at[j][1]];
    }
    constexpr int kLinePairs = 16;
    if (lane_id() * kLinePairs < n_turned) fetch_ahead(part.table + lane_id() * 2 * kLinePairs);
  }
  ZINC_DEVICE int dim() const { return kKeyDim == kValueDim ? kKeyDim : part.dim; }
  ZINC_DEVICE bool has(int j, int e) const { return kIsWhole || at[j][e] < dim(); }

  ZINC_DEVICE float norm_factor() const {
    constexpr int kSegments = (kHeadRow + kSegmentElems - 1) / kSegmentElems;
    float sum = 0;
#pragma unroll
    for (int s = 0; s < kSegments; ++s) {
      const Eight x = load_fresh(from, s * kSegmentElems + lane_id() * 8, dim());
      if (s * kSegmentElems < dim()) sum += lanes_sum(squares(x, 0), 32);
    }
    return rms_factor(sum, dim(), part.eps);
  }
  ZINC_DEVICE void make(float (&y)[kPairs][2]) const {
    float2 x[kPairs], turn[kPairs];
#pragma unroll
    for (int j = 0; j < kPairs; ++j) {
      const int pair = j * 32 + lane_id();
      x[j] = turn[j] = make_float2(0, 0);
      if (has(j, 0)) x[j].x = __ldcg(from + at[j][0]);
      if (has(j, 1)) x[j].y = __ldcg(from + at[j][1]);
      if (pair < n_turned) turn[j] = __ldcg(reinterpret_cast<const float2*>(part.table) + pair);
    }
    const float factor = part.is_normed ? norm_factor() : 1.0f;
#pragma unroll
    for (int j = 0; j < kPairs; ++j) {
      const float a = x[j].x * factor * norm[j].x, b = x[j].y * factor * norm[j].y;
      const bool is_turned = j * 32 + lane_id() < n_turned;
      const float first = a * turn[j].x - b * turn[j].y, second = a * turn[j].y + b * turn[j].x;
      y[j][0] = is_turned ? first : a;
      y[j][1] = is_turned ? second : b;
    }
  }
};

// One block: some heads that share keys, and every n_splits-th chunk of what they see.
struct OneBlock {
  const AttendOneParams& one;
  OneRoom& room;
  KvLayer kv;
  int kv_head, first_head, n_heads, position, oldest;
  int newest_unit, place;            // of the position: place in its page
  int first, last, split, n_splits;  // chunks
  int group, member;                 // of the warp
  UnitRows rows;

  ZINC_DEVICE OneBlock(const AttendOneParams& its_params, OneRoom& its_room)
      : one(its_params), room(its_room), kv(its_params.attention.kv) {
    constexpr int kTilesOfHead = (kShape.group_heads + kRows - 1) / kRows;
    const AttentionParams& p = one.attention;
    kv.k_dim = kKeyDim;
    kv.v_dim = kValueDim;
    kv_head = static_cast<int>(blockIdx.x) / kTilesOfHead;
    const int head_in_group = static_cast<int>(blockIdx.x) % kTilesOfHead * kRows;
    first_head = kv_head * kShape.group_heads + head_in_group;
    n_heads = min(kRows, kShape.group_heads - head_in_group);
    position = p.step.positions[0];  // what the host uploads is there before any kernel of the step
    oldest = kShape.window > 0 ? max(0, position - kShape.window + 1) : 0;
    first = static_cast<int>(static_cast<u32>(oldest) / kChunkPositions);
    last = static_cast<int>(static_cast<u32>(position) / kChunkPositions);
    newest_unit = static_cast<int>(static_cast<u32>(position) / kUnitPositions);
    place = static_cast<int>(static_cast<u32>(position) % kPagePositions);
    split = static_cast<int>(blockIdx.z);
    n_splits = min(static_cast<int>(gridDim.z), last - first + 1);
    group = warp_id() / kGroupWarps;
    member = warp_id() % kGroupWarps;
    const int its = min(group, kGroups - 1);
    rows = UnitRows{room.q,
                    kQueryStride,
                    room.weights[its],
                    room.exchange[its],
                    group,
                    {position, position},
                    oldest,
                    position,
                    position,
                    p.scale,
                    kShape.has_softcap ? p.softcap : 0.0f,
                    kShape.window};
  }

  ZINC_DEVICE bool has_newest() const { return kShape.has_keys && (last - first) % n_splits == split; }
  ZINC_DEVICE bool is_single() const { return first == last; }
  ZINC_DEVICE int first_unit(int chunk) const {
    return max(chunk * kChunkUnits, static_cast<int>(static_cast<u32>(oldest) / kUnitPositions));
  }
  ZINC_DEVICE int last_unit(int chunk) const { return min(chunk * kChunkUnits + kChunkUnits - 1, newest_unit); }

  // A group's first unit in the block's chunks from `chunk` on, and its chunk; both negative if there is none.
  ZINC_DEVICE int2 find_unit(int its_group, int chunk) const {
    for (; chunk <= last; chunk += n_splits) {
      const int from = first_unit(chunk), unit = from + ((its_group - from) & (kGroups - 1));
      if (unit <= last_unit(chunk)) return make_int2(unit, chunk);
    }
    return make_int2(-1, -1);
  }
  ZINC_DEVICE int2 next_unit(int2 at) const {
    if (at.x + kGroups <= last_unit(at.y)) return make_int2(at.x + kGroups, at.y);
    return find_unit(group, at.y + n_splits);
  }

  // ---- copies, by the threads of a group ----

  ZINC_DEVICE int member_thread() const { return static_cast<int>(threadIdx.x) % (kGroupWarps * 32); }
  ZINC_DEVICE UnitPages pages_of(int unit, int last_known) const {
    return UnitPages(one.attention.step, kv, 0, kv_head, unit, oldest, last_known);
  }
  ZINC_DEVICE void copy_keys(const UnitPages& pages) const {
    const InShared to(room.units[group], kv);
#pragma unroll 1
    for (int i = member_thread(); i < kUnitPositions * kKeyBlocks * 4; i += kGroupWarps * 32) {
      const int at = i % kUnitPositions, piece = i / kUnitPositions;
      int place;
      const u8* page = pages.find(at, place);
      Halves<Kv>::copy_key(to.key_at(at, piece), page, kKeyDim, place, piece);
    }
  }
  ZINC_DEVICE void copy_values(const UnitPages& pages) const {
    constexpr int kPieces = kValueRow / 8;
    const InShared to(room.units[group], kv);
#pragma unroll 1
    for (int i = member_thread(); i < kUnitPositions * kPieces; i += kGroupWarps * 32) {
      const int at = i / kPieces, dim = i % kPieces * 8;
      int place;
      const u8* page = pages.find(at, place);
      Halves<Kv>::copy_value(to.value_at(at, dim), page + kv.value_begin, kValueRow, place, dim);
    }
  }
  ZINC_DEVICE void clear_values() const {
    constexpr int kPieces = kValueRow / 8;
    const InShared to(room.units[group], kv);
#pragma unroll 1
    for (int i = member_thread(); i < kUnitPositions * kPieces; i += kGroupWarps * 32) {
      *reinterpret_cast<uint4*>(to.value_at(i / kPieces, i % kPieces * 8)) = make_uint4(0, 0, 0, 0);
    }
  }
  // Begins to load a group's unit, positions up to last_known: those past it stand for it, or for nothing.
  ZINC_DEVICE void load(int unit, int last_known) const {
    if (unit >= 0 && last_known >= max(unit * kUnitPositions, oldest)) {
      const UnitPages pages = pages_of(unit, last_known);
      copy_keys(pages);
      end_copies();
      copy_values(pages);
    } else if (unit >= 0) {
      clear_values();
    }
    end_copies();
  }

  // ---- heads ----

  // Warps 0 to kRows - 1 make the queries, the next two the key and the value; blocks that share a key head write the
  // same.
  ZINC_DEVICE int part_of_warp() const {
    const int which = warp_id() < kRows ? 0 : warp_id() - kRows + 1;
    if (which == 0) return warp_id() < n_heads ? 0 : -1;
    return which <= 2 && has_newest() ? which : -1;
  }
  // A key or value goes to its page, and to its unit if that is here already; else it is read from the page later.
  ZINC_DEVICE void make_head(const OneHead& head, int which, u8* page) const {
    const int its_group = static_cast<int>(static_cast<u32>(newest_unit) % kGroups);
    const bool is_here = find_unit(its_group, first + split).x == newest_unit;
    const InShared to(room.units[its_group], kv);
    float y[kPairs][2];
    head.make(y);
    if constexpr (kShape.kv_format == kKvQ8) {
      float* values = room.heads[warp_id()];
#pragma unroll
      for (int i = 0; i < 2 * kPairs; ++i) {
        if (const int dim = head.at[i / 2][i % 2]; dim < kHeadRow) values[dim] = y[i / 2][i % 2];
      }
      __syncwarp();
#pragma unroll 1
      for (int block = 0; which > 0 && block < (which == 1 ? kKeyBlocks : kValueRow / 32); ++block) {
        const float value = values[block * 32 + lane_id()];
        write_block<Kv>(kv, page, which == 1, place, block, value);
        if (is_here) keep(to, which, block * 32 + lane_id(), Halves<Kv>::kept(value));
      }
      if (which > 0) return;
    }
#pragma unroll
    for (int i = 0; i < 2 * kPairs; ++i) {
      const u32 dim = static_cast<u32>(head.at[i / 2][i % 2]);
      const u16 half = float_to_half(y[i / 2][i % 2]);
      if (!OneHead::kIsWhole && dim >= (which == 2 ? kValueRow : kKeyBlocks * 32)) continue;
      if (which == 0) {
        reinterpret_cast<u16*>(room.q + warp_id() * kQueryStride)[dim] = half;
      } else {
        const int at = which == 1 ? (dim / 8 * kPagePositions + place) * 8 + dim % 8
                                  : kv.value_begin / 2 + place * kValueRow + dim;
        reinterpret_cast<u16*>(page)[at] = half;
        if (is_here) keep(to, which, dim, half);
      }
    }
  }
  ZINC_DEVICE void keep(const InShared& to, int which, int dim, u16 half) const {
    const int at = static_cast<u32>(position) % kUnitPositions;
    *reinterpret_cast<u16*>(which == 1 ? to.key_at(at, dim / 8) + dim % 8 * 2 : to.value_at(at, dim)) = half;
  }

  // ---- units ----

  // One unit of all rows; its results go to the room, and the one after it is on its way. next: negative if none is.
  ZINC_DEVICE void attend_unit(int unit, int next) const {
    const int quad = lane_id() / 4, i = lane_id() % 4, u = static_cast<u32>(unit) % kChunkUnits;
    const InShared source(room.units[group], kv);
    float scores[kTiles][4];
    UnitResult result;
    await_copies<1>();
    group_meets<kGroupWarps>(group);
    score_unit<kGroupWarps, 1>(rows, source, kKeyBlocks, member, scores);
    mask_unit<kGroupWarps, 1>(rows, unit, member, scores);
    group_meets<kGroupWarps>(group);  // the keys have been read
    if (next >= 0) copy_keys(pages_of(next, position));
    end_copies();
    soften_unit<kGroupWarps, 1>(rows, member, scores, result);
    await_copies<1>();
    group_meets<kGroupWarps>(group);
    weigh_unit<kGroupWarps, 1>(rows, source, kValueRow, member, result);
    if (quad < kRows) {
      if (member == 0 && i == 0) room.runs[u][quad] = result.row[0];
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int at = member * kUnitDims + 8 * (2 * i + e);
        if (at >= kValueRow) continue;
        float4* to = reinterpret_cast<float4*>(&room.values[u][quad][at]);
        const auto& v = result.values;
        to[0] = make_float4(v[0][e], v[1][e], v[2][e], v[3][e]);
        to[1] = make_float4(v[4][e], v[5][e], v[6][e], v[7][e]);
      }
    }
    if (next >= 0) {
      group_meets<kGroupWarps>(group);  // values and weights have been read
      copy_values(pages_of(next, position));
    }
    end_copies();
  }
};

// The results of a thread: some numbers of one row.
struct OneResult {
  int row, head, dim;
  bool has_row;
  float sink;  // of the head, if there are any
  float gate[kOuts][kWide];
  float value[kOuts][kWide];

  ZINC_DEVICE explicit OneResult(const OneBlock& block) {
    row = warp_id() / kRowWarps;
    has_row = row < block.n_heads;
    row = min(row, kRows - 1);
    head = block.first_head + row;
    dim = (warp_id() % kRowWarps * 32 + lane_id()) * kWide;
    const float* sinks = block.one.attention.sinks;
    sink = sinks && has_row ? sinks[head] : 0.0f;
  }
  ZINC_DEVICE bool has(int k) const { return has_row && dim + k * kTurn < kValueDim; }
  ZINC_DEVICE void load_gate(const AttendOneParams& one) {
    if constexpr (kShape.act == kNoAct) return;
#pragma unroll
    for (int k = 0; k < kOuts; ++k) {
#pragma unroll
      for (int e = 0; e < kWide; ++e) {
        if (has(k))
          gate[k][e] = __ldcg(one.gate + static_cast<long long>(head) * one.gate_stride + dim + k * kTurn + e);
      }
    }
  }

  // The units of a chunk, in order: the first one as it is.
  ZINC_DEVICE Running merge_units(const OneRoom& room, int from, int to) {
    Running all;
#pragma unroll 1
    for (int unit = from; unit <= to; ++unit) {
      const int u = static_cast<u32>(unit) % kChunkUnits;
      const Running run = room.runs[u][row];
      float keep = 0, take = 1;
      if (unit == from) {
        all = run;
      } else {
        merge(all, run, keep, take);
      }
#pragma unroll
      for (int k = 0; k < kOuts; ++k) {
        const float* its = &room.values[u][row][has(k) ? dim + k * kTurn : 0];
#pragma unroll
        for (int e = 0; e < kWide; ++e) value[k][e] = unit == from ? its[e] : merged(value[k][e], its[e], keep, take);
      }
    }
    return all;
  }

  ZINC_DEVICE void write(const AttendOneParams& one, Running all) const {
    const float factor = final_factor(all, one.attention.sinks ? &sink : nullptr, 0);
    float* out = one.attention.out + head * kValueDim + dim;
#pragma unroll
    for (int k = 0; k < kOuts; ++k) {
#pragma unroll
      for (int e = 0; e < kWide; ++e) {
        float x = value[k][e] * factor;
        if constexpr (kShape.act != kNoAct) x = gated(kShape.act, gate[k][e], x);
        if (has(k)) out[k * kTurn + e] = x;
      }
    }
  }

  ZINC_DEVICE float* partial(const AttentionParams& p, int slot) const {
    return p.partial + (static_cast<long long>(head) * p.n_chunks + slot) * kWidth;
  }
  ZINC_DEVICE void write_partial(const AttentionParams& p, int slot, Running all) const {
    float* to = partial(p, slot);
    if (has_row && dim == 0) {
      to[0] = all.largest;
      to[1] = all.sum;
    }
#pragma unroll
    for (int k = 0; k < kOuts; ++k) {
#pragma unroll
      for (int e = 0; e < kWide; ++e) {
        if (has(k)) to[2 + dim + k * kTurn + e] = value[k][e];
      }
    }
  }

  // Chunks in order, as merge_row does it: a lane finds out how one of them counts.
  ZINC_DEVICE Running merge_chunks(const AttentionParams& p, int n_chunks) {
    constexpr int kAtOnce = kOuts == 1 ? 16 : 8;  // loads under way
    Running all = {lowest_score(), 0.0f};
#pragma unroll
    for (int k = 0; k < kOuts; ++k) {
#pragma unroll
      for (int e = 0; e < kWide; ++e) value[k][e] = 0;
    }
    const float* chunks = partial(p, 0);
#pragma unroll 1
    for (int begin = 0; begin < n_chunks; begin += kAtOnce, chunks += kAtOnce * kWidth) {
      float from[kAtOnce][kOuts][kWide];
      const bool has_chunk = lane_id() < kAtOnce && begin + lane_id() < n_chunks;
      const float* its = chunks + (has_chunk ? lane_id() : 0) * kWidth;
      const float largest = has_chunk ? __ldcg(its) : lowest_score(), sum = __ldcg(its + 1);
#pragma unroll
      for (int c = 0; c < kAtOnce; ++c) {
#pragma unroll
        for (int k = 0; k < kOuts; ++k) {
#pragma unroll
          for (int e = 0; e < kWide; ++e) {
            const bool has_it = has(k) && begin + c < n_chunks;
            from[c][k][e] = has_it ? __ldcg(chunks + c * kWidth + 2 + dim + k * kTurn + e) : 0.0f;
          }
        }
      }
      float upto = fmaxf(all.largest, largest);  // the largest up to the lane's chunk
      for (int step = 1; step < 32; step *= 2) {
        const float before = __shfl_up_sync(0xFFFFFFFFu, upto, step);
        if (lane_id() >= step) upto = fmaxf(upto, before);
      }
      float before = __shfl_up_sync(0xFFFFFFFFu, upto, 1);
      if (lane_id() == 0) before = all.largest;
      const float keep = expf(before - upto), take = expf(largest - upto), added = sum * take;
#pragma unroll
      for (int c = 0; c < kAtOnce; ++c) {
        if (begin + c >= n_chunks) break;
        const float its_keep = __shfl_sync(0xFFFFFFFFu, keep, c), its_take = __shfl_sync(0xFFFFFFFFu, take, c);
        all.sum = fmaf(all.sum, its_keep, __shfl_sync(0xFFFFFFFFu, added, c));
#pragma unroll
        for (int k = 0; k < kOuts; ++k) {
#pragma unroll
          for (int e = 0; e < kWide; ++e) value[k][e] = merged(value[k][e], from[c][k][e], its_keep, its_take);
        }
      }
      all.largest = __shfl_sync(0xFFFFFFFFu, upto, 31);
    }
    return all;
  }
};

// Grid: tiles of heads; 1; splits of the chunks.
ZINC_KERNEL_2 attend_one(__grid_constant__ const AttendOneParams one) {
  extern __shared__ float4 shared[];
  let_next_start();
  touch_params(one);
  OneRoom& room = *reinterpret_cast<OneRoom*>(shared);
  const AttentionParams& p = one.attention;
  const OneBlock block(one, room);
  if (block.split >= block.n_splits) return;
  int2 at = make_int2(-1, -1);  // the group's unit, its chunk
  if (block.group < kGroups) at = block.find_unit(block.group, block.first + block.split);
  if (kShape.has_keys && block.group < kGroups) block.load(at.x, block.position - 1);
  const int which = block.part_of_warp();
  const OneHead head(one.parts[max(which, 0)], which <= 0 ? block.first_head + warp_id() : block.kv_head);
  u8* page = head_of(block.kv, page_of(p.step, block.kv.group, 0, block.position), block.kv_head);
  OneResult result(block);
  await_copies<0>();
  __syncthreads();
  wait_for_previous();
  if (!kShape.has_keys && block.group < kGroups) block.load(at.x, block.position);
  result.load_gate(one);
  if (which >= 0) block.make_head(head, which, page);
  __syncthreads();
#pragma unroll 1
  for (int chunk = block.first + block.split; chunk <= block.last; chunk += block.n_splits) {
#pragma unroll 1
    while (at.y == chunk) {
      const int unit = at.x;
      at = block.next_unit(at);
      block.attend_unit(unit, at.x);
    }
    __syncthreads();
    const Running all = result.merge_units(room, block.first_unit(chunk), block.last_unit(chunk));
    if (block.is_single()) {
      result.write(one, all);
      return;
    }
    result.write_partial(p, chunk - block.first, all);
    __syncthreads();
  }
  if (!is_last_of(one.n_done + blockIdx.x, block.n_splits)) return;
  const Running all = result.merge_chunks(p, block.last - block.first + 1);
  result.write(one, all);
}

}  // namespace zinc::simt
