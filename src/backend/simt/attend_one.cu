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
constexpr int kSegments = (kHeadRow + kSegmentElems - 1) / kSegmentElems;  // of a head: eight numbers a lane each
// Results: warps that share a row, neighbouring numbers of a lane, and how many of these it has.
constexpr int kRowWarps = kWarps / kRows, kWide = kValueDim % 2 == 0 ? 2 : 1, kTurn = kRowWarps * 32 * kWide;
constexpr int kPartial = partial_row(kValueDim);  // of a row's result of a chunk: largest, sum, two more, values
constexpr int kSumRow = kValueRow + 8;            // of a unit's results: rows start in different banks
constexpr int kOuts = (kValueDim + kTurn - 1) / kTurn;
static_assert(kRows <= 6, "a warp for each head, two for the key and the value; eight rows of a unit");

// Shared memory of a block.
struct OneRoom {
  u8 units[kGroups][unit_bytes(kKeyDim, kValueDim)];
  float heads[kRows + 2][kHeadRow];  // queries and the key before they are turned
  u32 q[kUnitRows * kQueryStride];   // queries as halves
  u32 weights[kGroups][kUnitRows * (kWeightStride / 2)];
  float exchange[kGroups][2 * kGroupWarps * kUnitRows];
  float values[kChunkUnits][kRows][kSumRow];  // results of units
  Running runs[kChunkUnits][kRows];
};
static_assert(sizeof(OneRoom) <= attend_room_bytes(kShape));
// Chunks whose results of all rows have room where units were.
constexpr int kFit = sizeof(OneRoom::units) / (kRows * kPartial * 4);
constexpr int kBatch = kFit >= 32 ? 32 : kFit >= 16 ? 16 : kFit >= 8 ? 8 : 4;
static_assert(kFit >= 4);

// A number that is worked out here, not where it is first used: before the wait there is time.
template <class T>
ZINC_DEVICE void settle(T& x) {
  if constexpr (sizeof(T) == 8) {
    asm volatile("" : "+l"(x));
  } else {
    asm volatile("" : "+r"(x));
  }
}
// A place in the room, by its distance from the begin.
template <class T>
ZINC_DEVICE T& in_room(OneRoom& room, int at) {
  return *reinterpret_cast<T*>(reinterpret_cast<u8*>(&room) + at);
}
ZINC_DEVICE int place_of(const OneRoom& room, const void* at) {
  return static_cast<int>(static_cast<const u8*>(at) - reinterpret_cast<const u8*>(&room));
}

// Read past the first-level cache: it may hold what was there before the wait. REQUIRES: at % 8 == 0.
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

// Eight numbers as halves.
ZINC_DEVICE uint4 to_halves(const Eight& x) {
  return make_uint4(pack_halves(x.v[0], x.v[1]), pack_halves(x.v[2], x.v[3]), pack_halves(x.v[4], x.v[5]),
                    pack_halves(x.v[6], x.v[7]));
}

// How a lane's eight neighbours of a head are turned. One that is its pair's first: a cos - b sin; its second: a sin +
// b cos, as prepare_head has it.
struct OneTurn {
  int first, n_pairs;   // the first number's place in the head
  const float2* table;  // of that number's pair on
  int own, other;       // places in the room: of the eight, and of those they are turned with

  ZINC_DEVICE void init(const HeadPart& part, int its_first, int row) {
    first = its_first;
    n_pairs = part.n_pairs;
    const bool is_low = first < n_pairs;
    const int pair = kShape.turn == kTurnPairs ? first / 2 : is_low ? first : first - n_pairs;
    table = reinterpret_cast<const float2*>(part.table) + (is_turned() ? pair : 0);
    own = row + first * 4;
    other = own + (is_low ? n_pairs : -n_pairs) * 4;
    settle(n_pairs);
    settle(table);
    settle(own);
    settle(other);
  }
  ZINC_DEVICE bool is_turned() const { return first < 2 * n_pairs; }
  ZINC_DEVICE bool is_turned(int i) const { return kShape.turn == kTurnEights || first + i < 2 * n_pairs; }
  ZINC_DEVICE bool is_first(int i) const {
    if (kShape.turn == kTurnPairs) return i % 2 == 0;
    return kShape.turn == kTurnEights ? first < n_pairs : first + i < n_pairs;
  }

  ZINC_DEVICE void load(float2 (&by)[8]) const {
    if (!is_turned()) return;
    if (kShape.turn == kTurnRagged || (kShape.turn == kTurnPairs && !is_turned(7))) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int step = kShape.turn == kTurnPairs ? i / 2 : first < n_pairs && !is_first(i) ? i - n_pairs : i;
        if (is_turned(i)) by[i] = __ldcg(table + step);
      }
      return;
    }
    constexpr int kEach = kShape.turn == kTurnPairs ? 2 : 1;  // numbers of the eight that a pair has
#pragma unroll
    for (int i = 0; i < 8; i += 2 * kEach) {
      const float4 two = __ldcg(reinterpret_cast<const float4*>(table) + i / (2 * kEach));
#pragma unroll
      for (int k = 0; k < 2 * kEach; ++k) {
        by[i + k] = k < kEach ? make_float2(two.x, two.y) : make_float2(two.z, two.w);
      }
    }
  }
  ZINC_DEVICE void show(OneRoom& room, const Eight& x) const {
    if (kShape.turn == kTurnPairs || first >= kHeadRow) return;
    in_room<float4>(room, own) = make_float4(x.v[0], x.v[1], x.v[2], x.v[3]);
    in_room<float4>(room, own + 16) = make_float4(x.v[4], x.v[5], x.v[6], x.v[7]);
  }
  // REQUIRES: all lanes have shown theirs.
  ZINC_DEVICE void apply(OneRoom& room, const float2 (&by)[8], Eight& x) const {
    if (!is_turned()) return;
    Eight with;
    if constexpr (kShape.turn == kTurnEights) {
      const float4 a = in_room<float4>(room, other), b = in_room<float4>(room, other + 16);
      with = {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
    } else {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int apart = is_first(i) ? n_pairs : -n_pairs;
        with.v[i] = kShape.turn == kTurnPairs ? x.v[i ^ 1]
                    : is_turned(i)            ? in_room<float>(room, own + (i + apart) * 4)
                                              : 0;
      }
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float turned = fmaf(is_first(i) ? -1.0f : 1.0f, with.v[i] * by[i].y, x.v[i] * by[i].x);
      if (is_turned(i)) x.v[i] = turned;
    }
  }
};

// A warp's head on its way in, normed and turned as prepare_heads does it: eight neighbours a lane and segment.
struct OneHead {
  const float* from;
  int dim, is_normed;
  float eps;
  Eight norm[kSegments];  // weights
  OneTurn turn[kSegments];

  // What nobody in this step writes; and the table of the rotation comes nearer. row: the head's place in the room.
  ZINC_DEVICE OneHead(const HeadPart& part, int head, int row)
      : from(part.x + head * part.stride),
        dim(kKeyDim == kValueDim ? kKeyDim : part.dim),
        is_normed(part.is_normed),
        eps(part.eps) {
    settle(from);
    settle(is_normed);
#pragma unroll
    for (int s = 0; s < kSegments; ++s) {
      norm[s] = {{1, 1, 1, 1, 1, 1, 1, 1}};
      if (is_normed && part.norm_weight) norm[s] = load_eight(part.norm_weight, at(s), dim);
      turn[s].init(part, at(s), row);
    }
    constexpr int kLinePairs = 16;
    if (lane_id() * kLinePairs < part.n_pairs) fetch_ahead(part.table + lane_id() * 2 * kLinePairs);
  }
  static ZINC_DEVICE int at(int s) { return s * kSegmentElems + lane_id() * 8; }

  ZINC_DEVICE void make(OneRoom& room, Eight (&x)[kSegments]) const {
    float2 by[kSegments][8];
#pragma unroll
    for (int s = 0; s < kSegments; ++s) {
      x[s] = load_fresh(from, at(s), dim);
      turn[s].load(by[s]);
    }
    if (is_normed) {
      float sum = 0;
#pragma unroll
      for (int s = 0; s < kSegments; ++s) sum += lanes_sum(squares(x[s], 0), 32);
      const float factor = rms_factor(sum, dim, eps);
#pragma unroll
      for (int i = 0; i < 8 * kSegments; ++i) x[i / 8].v[i % 8] = x[i / 8].v[i % 8] * factor * norm[i / 8].v[i % 8];
    }
    if (turn[0].n_pairs == 0) return;
#pragma unroll
    for (int s = 0; s < kSegments; ++s) turn[s].show(room, x[s]);
    __syncwarp();
#pragma unroll
    for (int s = 0; s < kSegments; ++s) turn[s].apply(room, by[s], x[s]);
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
  // What else the first chunk has comes nearer, a page by a lane. Positions past last_known are not written yet.
  ZINC_DEVICE void fetch_chunk(int last_known) const {
    const int from = (first + split) * kChunkPositions + lane_id() * kPagePositions;
    const int begin = first_unit(first + split) * kUnitPositions;
    if (lane_id() >= kChunkPositions / kPagePositions || from < begin + kGroups * kUnitPositions || from > last_known)
      return;
    fetch_bulk(head_of(kv, page_of(one.attention.step, kv.group, 0, from), kv_head), kv.head_bytes);
  }

  // ---- heads ----

  // Warps 0 to kRows - 1 make the queries, the next two the key and the value; blocks that share a key head write the
  // same.
  ZINC_DEVICE int part_of_warp() const {
    const int which = warp_id() < kRows ? 0 : warp_id() - kRows + 1;
    if (which == 0) return warp_id() < n_heads ? 0 : -1;
    return which <= 2 && has_newest() ? which : -1;
  }
};

// Where a lane's eight numbers of a head go: queries to the room, a key or value to its page, and to its unit if that
// is here already; else it is read from the page later.
struct HeadPlace {
  int which, dim;
  int room;  // negative: nowhere
  u8* page;

  ZINC_DEVICE void init(const OneBlock& block, int its_which, int its_dim) {
    which = its_which;
    dim = its_dim;
    page = nullptr;
    const int its_group = static_cast<int>(static_cast<u32>(block.newest_unit) % kGroups);
    const bool is_here = block.find_unit(its_group, block.first + block.split).x == block.newest_unit;
    const int at = static_cast<u32>(block.position) % kUnitPositions;
    const InShared to(block.room.units[its_group], block.kv);
    const bool has_it = dim < (which == 2 ? kValueRow : kKeyBlocks * 32);
    const void* place = which == 0   ? static_cast<const void*>(block.room.q + warp_id() * kQueryStride + dim / 2)
                        : which == 1 ? to.key_at(at, dim / 8)
                                     : to.value_at(at, dim);
    room = has_it && (which == 0 || (which > 0 && is_here)) ? place_of(block.room, place) : -1;
    if (which > 0 && has_it) {
      u8* head = head_of(block.kv, page_of(block.one.attention.step, block.kv.group, 0, block.position), block.kv_head);
      page = head + (which == 1 ? 0 : block.kv.value_begin);
      if constexpr (kShape.kv_format == kKvF16) {
        page += which == 1 ? (dim / 8 * kPagePositions + block.place) * 16 : (block.place * kValueRow + dim) * 2;
      }
    }
    settle(room);
    settle(page);
  }

  ZINC_DEVICE void put(const OneBlock& block, const Eight& x) const {
    uint4 halves = to_halves(x);
    if constexpr (kShape.kv_format == kKvF16) {
      if (page) *reinterpret_cast<uint4*>(page) = halves;
    } else if (which > 0) {
      halves = put_bytes(block.place, x);
    }
    if (room >= 0) in_room<uint4>(block.room, room) = halves;
  }
  // Four lanes share a scale, as KvQ8::write's whole warp does. Returns what is kept.
  ZINC_DEVICE uint4 put_bytes(int place, const Eight& x) const {
    float largest = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) largest = fmaxf(largest, fabsf(x.v[i]));
    const float d = lanes_max(largest, 4) / 127.0f, inverse = d != 0.0f ? 1.0f / d : 0.0f;
    const u16 scale = float_to_half(d);
    uint2 bytes = make_uint2(0, 0);
    Eight kept;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float q = KvQ8::whole(x.v[i] * inverse);
      kept.v[i] = q * half_to_float(scale);
      (i < 4 ? bytes.x : bytes.y) |= (static_cast<u32>(static_cast<int>(q)) & 255u) << 8 * (i % 4);
    }
    if (page) {
      const int at = which == 1 ? (dim / 16 * kPagePositions + place) * 16 + dim % 16 : place * kValueRow + dim;
      const int block = which == 1 ? dim / 32 * kPagePositions + place : place * (kValueDim / 32) + dim / 32;
      *reinterpret_cast<uint2*>(page + at) = bytes;
      u16* scales = reinterpret_cast<u16*>(page + (which == 1 ? kKeyDim : kValueDim) * kPagePositions);
      if (dim % 32 == 0) scales[block] = scale;
    }
    return to_halves(kept);
  }
};

// A unit as a lane sees it: the arithmetic of attention_mma.h for eight rows at most, keys and values in the room.
struct OneUnit {
  static constexpr int kUnitGap = static_cast<int>(sizeof(OneRoom::values) / kChunkUnits);
  const OneBlock& block;
  float scale, softcap;
  // Places in the room: the lane's part of keys, values, queries; where its weights go and come from; what the group's
  // warps exchange; its part of the results.
  int key, value, query, weight_to, weight_from, exchange_to, exchange, result;

  ZINC_DEVICE explicit OneUnit(const OneBlock& its_block)
      : block(its_block), scale(its_block.one.attention.scale), softcap(its_block.one.attention.softcap) {
    OneRoom& room = block.room;
    const int quad = lane_id() / 4, i = lane_id() % 4, row = lane_id() % 8, member = block.member;
    const int group = min(block.group, kGroups - 1);
    const InShared unit(room.units[group], block.kv);
    const int turned = row / 2 * 4 + lane_id() / 8 % 2 * 2 + row % 2;
    key = place_of(room, unit.key_at(member * kTiles * 8 + quad, i));
    value = place_of(room, unit.value_at(turned, member * kUnitDims + lane_id() / 16 * 8));
    query = place_of(room, room.q + quad * kQueryStride + 4 * i);
    weight_to = place_of(room, room.weights[group] + quad * (kWeightStride / 2) + member * kTiles * 4 + i);
    weight_from = place_of(room, room.weights[group] + quad * (kWeightStride / 2) + 2 * i);
    exchange_to = place_of(room, room.exchange[group] + member * kUnitRows + quad);
    exchange = place_of(room, room.exchange[group] + quad);
    result = place_of(room, &room.values[0][min(quad, kRows - 1)][member * kUnitDims + 2 * i]);
    for (int* place : {&key, &value, &query, &weight_to, &weight_from, &exchange_to, &exchange, &result})
      settle(*place);
  }
  ZINC_DEVICE void meet() const { group_meets<kGroupWarps>(block.group); }

  ZINC_DEVICE void score(float (&scores)[kTiles][4]) const {
    constexpr int kPieceStride = InShared::kPieceStride, kHalf = kKeyBlocks * 4 * kPieceStride;
    clear(scores);
#pragma unroll(kKeyBlocks <= 4 ? kKeyBlocks : 2)
    for (int b = 0; b < kKeyBlocks; ++b) {
      const uint4 a = in_room<uint4>(block.room, query + b * 64);
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
        const int from = key + b * 4 * kPieceStride + t / 4 * kHalf + t % 4 * 128;
        const uint4 k = in_room<uint4>(block.room, from);
        multiply_halves(scores[t], a.x, 0, a.y, 0, k.x, k.y);
        multiply_halves(scores[t], a.z, 0, a.w, 0, k.z, k.w);
      }
    }
  }
  // Scores as the softmax sees them; the largest of the warp's goes to the exchange.
  ZINC_DEVICE void mask(int unit, float (&scores)[kTiles][4]) const {
    const int first = unit * kUnitPositions, position = first + block.member * kTiles * 8 + lane_id() % 4 * 2;
    const bool see_all = first + kUnitPositions - 1 <= block.position && (kShape.window == 0 || first >= block.oldest);
    float largest = lowest_score();
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float& s = scores[t][e];
        s *= scale;
        if constexpr (kShape.has_softcap != 0) s = capped(s);
        const int its = position + t * 8 + e;
        if (!see_all && (its > block.position || (kShape.window > 0 && its < block.oldest))) s = lowest_score();
        largest = fmaxf(largest, s);
      }
    }
    largest = lanes_max(largest, 4);
    if (lane_id() % 4 == 0) in_room<float>(block.room, exchange_to) = largest;
  }
  __device__ __noinline__ float capped(float s) const { return softcap * tanhf(s / softcap); }

  // Scores become weights. REQUIRES: the group met after mask().
  ZINC_DEVICE Running soften(float (&scores)[kTiles][4]) const {
    Running all = {in_room<float>(block.room, exchange), 0.0f};
#pragma unroll
    for (int w = 1; w < kGroupWarps; ++w) {
      all.largest = fmaxf(all.largest, in_room<float>(block.room, exchange + w * kUnitRows * 4));
    }
    const float offset = all.largest == lowest_score() ? 0.0f : all.largest;
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        scores[t][e] = power_of_two((scores[t][e] - offset) * kLog2E);
        all.sum += scores[t][e];
      }
      in_room<u32>(block.room, weight_to + t * 16) = pack_halves(scores[t][0], scores[t][1]);
    }
    all.sum = lanes_sum(all.sum, 4);
    if (lane_id() % 4 == 0) in_room<float>(block.room, exchange_to + kGroupWarps * kUnitRows * 4) = all.sum;
    return all;
  }
  // REQUIRES: the group met after soften(). Values' terms are in the places of weigh_sixteen(): a lane names the rows
  // of matrices, positions 4 j and 4 j + 1 of 16, then 4 j + 2 and 4 j + 3, for two times eight dimensions.
  ZINC_DEVICE void weigh(int unit, Running all) const {
    const int u = static_cast<u32>(unit) % kChunkUnits, quad = lane_id() / 4, i = lane_id() % 4;
    float values[8][4];
    all.sum = in_room<float>(block.room, exchange + kGroupWarps * kUnitRows * 4);
#pragma unroll
    for (int w = 1; w < kGroupWarps; ++w) {
      all.sum += in_room<float>(block.room, exchange + (kGroupWarps + w) * kUnitRows * 4);
    }
    clear(values);
    constexpr int kStride = (kValueRow + 63) / 64 * 128 + 32;
#pragma unroll
    for (int k = 0; k < kUnitPositions / 16; ++k) {
      const uint2 a = in_room<uint2>(block.room, weight_from + k * 32);
#pragma unroll
      for (int d = 0; d < kUnitDims / 16; ++d) {
        const uint4 v = load_turned(&in_room<u8>(block.room, value + k * 16 * kStride + d * 32));
        multiply_halves(values[2 * d], a.x, 0, a.y, 0, v.x, v.y);
        multiply_halves(values[2 * d + 1], a.x, 0, a.y, 0, v.z, v.w);
      }
    }
    if (quad >= kRows) return;
    if (block.member == 0 && i == 0) block.room.runs[u][quad] = all;
#pragma unroll
    for (int t = 0; t < 8; ++t) {
      if (kValueRow % 64 != 0 && block.member * kUnitDims + 8 * t >= kValueRow) break;
      in_room<float2>(block.room, result + u * kUnitGap + t * 32) = make_float2(values[t][0], values[t][1]);
    }
  }

  // All of it; the results go to the room, and the unit after it is on its way. next: negative if none is.
  ZINC_DEVICE void attend(int unit, int next) const {
    float scores[kTiles][4];
    await_copies<1>();
    meet();
    score(scores);
    mask(unit, scores);
    meet();  // the keys have been read
    if (next >= 0) block.copy_keys(block.pages_of(next, block.position));
    end_copies();
    const Running all = soften(scores);
    await_copies<1>();
    meet();
    weigh(unit, all);
    if (next >= 0) {
      meet();  // values and weights have been read
      block.copy_values(block.pages_of(next, block.position));
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
  int runs, values;  // places in the room, of the first unit

  ZINC_DEVICE explicit OneResult(const OneBlock& block) {
    row = warp_id() / kRowWarps;
    has_row = row < block.n_heads;
    row = min(row, kRows - 1);
    head = block.first_head + row;
    dim = (warp_id() % kRowWarps * 32 + lane_id()) * kWide;
    const float* sinks = block.one.attention.sinks;
    sink = sinks && has_row ? sinks[head] : 0.0f;
    runs = place_of(block.room, &block.room.runs[0][row]);
    values = place_of(block.room, &block.room.values[0][row][dim]);
    for (int* place : {&row, &head, &dim, &runs, &values}) settle(*place);
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
  ZINC_DEVICE Running merge_units(OneRoom& room, int from, int to) {
    Running all;
#pragma unroll 1
    for (int unit = from; unit <= to; ++unit) {
      const int u = static_cast<u32>(unit) % kChunkUnits;
      const Running run = in_room<Running>(room, runs + u * static_cast<int>(sizeof(Running)) * kRows);
      float keep = 0, take = 1;
      if (unit == from) {
        all = run;
      } else {
        merge(all, run, keep, take);
      }
#pragma unroll
      for (int k = 0; k < kOuts; ++k) {
        const float* its = &in_room<float>(room, values + u * OneUnit::kUnitGap + k * kTurn * 4);
#pragma unroll
        for (int e = 0; e < kWide; ++e) {
          if (has(k)) value[k][e] = unit == from ? its[e] : merged(value[k][e], its[e], keep, take);
        }
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

  ZINC_DEVICE void write_partial(const AttentionParams& p, int slot, Running all) const {
    float* to = p.partial + (static_cast<long long>(head) * p.n_chunks + slot) * kPartial;
    if (has_row && dim == 0) *reinterpret_cast<float2*>(to) = make_float2(all.largest, all.sum);
#pragma unroll
    for (int k = 0; k < kOuts; ++k) {
#pragma unroll
      for (int e = 0; e < kWide; ++e) {
        if (has(k)) to[4 + dim + k * kTurn + e] = value[k][e];
      }
    }
  }

  // Chunks in order, as merge_row does it, out of the room where units were: a lane finds out how one of them counts.
  ZINC_DEVICE Running merge_chunks(const OneBlock& block, int n_chunks) {
    constexpr int kRowFloats = kBatch * kPartial;
    const AttentionParams& p = block.one.attention;
    float* stage = reinterpret_cast<float*>(block.room.units);
    Running all = {lowest_score(), 0.0f};
#pragma unroll
    for (int k = 0; k < kOuts; ++k) {
#pragma unroll
      for (int e = 0; e < kWide; ++e) value[k][e] = 0;
    }
#pragma unroll 1
    for (int begin = 0; begin < n_chunks; begin += kBatch) {
      const int n = min(kBatch, n_chunks - begin);
      const float* from = p.partial + (static_cast<long long>(block.first_head) * p.n_chunks + begin) * kPartial;
      __syncthreads();
#pragma unroll 1
      for (int r = 0; r < block.n_heads; ++r, from += static_cast<long long>(p.n_chunks) * kPartial) {
#pragma unroll 4
        for (int i = static_cast<int>(threadIdx.x) * 4; i < n * kPartial; i += kThreads * 4) {
          copy_16(stage + r * kRowFloats + i, from + i);
        }
      }
      end_copies();
      await_copies<0>();
      __syncthreads();
      merge_batch(stage + row * kRowFloats, n, all);
    }
    return all;
  }
  ZINC_DEVICE void merge_batch(float* chunks, int n, Running& all) {
    float* its = chunks + min(lane_id(), n - 1) * kPartial;
    const float largest = lane_id() < n ? its[0] : lowest_score();
    float upto = fmaxf(all.largest, largest);  // the largest up to the lane's chunk
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const float before = __shfl_up_sync(0xFFFFFFFFu, upto, step);
      if (lane_id() >= step) upto = fmaxf(upto, before);
    }
    float before = __shfl_up_sync(0xFFFFFFFFu, upto, 1);
    if (lane_id() == 0) before = all.largest;
    if (lane_id() < n) *reinterpret_cast<float2*>(its + 2) = make_float2(expf(before - upto), expf(largest - upto));
    __syncwarp();  // warps that share a row leave the same there
    all.largest = __shfl_sync(0xFFFFFFFFu, upto, 31);
#pragma unroll 4
    for (int c = 0; c < n; ++c) {
      const float4 chunk = *reinterpret_cast<const float4*>(chunks + c * kPartial);  // largest, sum, keep, take
      all.sum = fmaf(all.sum, chunk.z, chunk.y * chunk.w);
#pragma unroll
      for (int k = 0; k < kOuts; ++k) {
#pragma unroll
        for (int e = 0; e < kWide; ++e) {
          if (has(k))
            value[k][e] = merged(value[k][e], chunks[c * kPartial + 4 + dim + k * kTurn + e], chunk.z, chunk.w);
        }
      }
    }
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
  if (warp_id() == kWarps - 1) block.fetch_chunk(block.position - 1);
  int which = block.part_of_warp();
  const OneHead head(one.parts[max(which, 0)], which <= 0 ? block.first_head + warp_id() : block.kv_head,
                     place_of(room, room.heads[min(warp_id(), kRows + 1)]));
  HeadPlace places[kSegments];
#pragma unroll
  for (int s = 0; s < kSegments; ++s) places[s].init(block, which, OneHead::at(s));
  const OneUnit unit(block);
  OneResult result(block);
  int2 next = at;
  if (at.x >= 0) next = block.next_unit(at);
  for (int* number : {&which, &at.x, &at.y, &next.x, &next.y}) settle(*number);
  await_copies<0>();
  __syncthreads();
  wait_for_previous();
  if (!kShape.has_keys && block.group < kGroups) block.load(at.x, block.position);
  result.load_gate(one);
  if (which >= 0) {
    Eight x[kSegments];
    head.make(room, x);
#pragma unroll
    for (int s = 0; s < kSegments; ++s) places[s].put(block, x[s]);
  }
  __syncthreads();
#pragma unroll 1
  for (int chunk = block.first + block.split; chunk <= block.last; chunk += block.n_splits) {
#pragma unroll 1
    while (at.y == chunk) {
      unit.attend(at.x, next.x);
      at = next;
      if (at.x >= 0) next = block.next_unit(at);
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
  const Running all = result.merge_chunks(block, block.last - block.first + 1);
  result.write(one, all);
}

}  // namespace zinc::simt
