// One block of attend_one.cu: which heads and chunks are its, how keys and values come to shared memory, where a new
// head goes, and one unit's scores, weights and sums, the arithmetic of attention_mma.h for eight rows at most.
#pragma once

#include "backend/simt/attend_one_head.h"

namespace zinc::simt {

// One block: some heads that share keys, and every n_splits-th chunk of what they see.
struct OneBlock {
  const AttendOneParams& one;
  OneRoom& room;
  KvLayer kv;
  int kv_head, first_head, n_heads, position, oldest;
  int newest_unit, place;            // of the position: place in its page
  int first, last, split, n_splits;  // chunks
  const int* columns;                // the page of each 32 positions
  int group, member;                 // of the warp
  // Where a thread's copies of a unit begin: places in the room, and in a head's page.
  int key_to, key_from, value_to, value_from;

  ZINC_DEVICE OneBlock(const AttendOneParams& its_params, OneRoom& its_room)
      : one(its_params), room(its_room), kv(its_params.attention.kv) {
    constexpr int kTilesOfHead = (kShape.group_heads + kRows - 1) / kRows;
    const AttentionParams& p = one.attention;
    kv.k_dim = kKeyDim;
    kv.v_dim = kValueDim;
    const int n_tiles = kv.kv_heads * kTilesOfHead;
    split = static_cast<int>(blockIdx.x) / n_tiles;
    const int tile = static_cast<int>(blockIdx.x) - split * n_tiles;
    kv_head = tile / kTilesOfHead;
    const int head_in_group = tile % kTilesOfHead * kRows;
    first_head = kv_head * kShape.group_heads + head_in_group;
    n_heads = min(kRows, kShape.group_heads - head_in_group);
    position = p.step.positions[0];  // what the host uploads is there before any kernel of the step
    oldest = kShape.window > 0 ? max(0, position - kShape.window + 1) : 0;
    first = static_cast<int>(static_cast<u32>(oldest) / kChunkPositions);
    last = static_cast<int>(static_cast<u32>(position) / kChunkPositions);
    newest_unit = static_cast<int>(static_cast<u32>(position) / kUnitPositions);
    place = static_cast<int>(static_cast<u32>(position) % kPagePositions);
    n_splits = min(static_cast<int>(gridDim.x) / n_tiles, last - first + 1);
    group = warp_id() / kGroupWarps;
    member = warp_id() % kGroupWarps;
    const Step& step = p.step;
    columns = step.counts + step.counts[kEntries + kv.group] - step.first_column[kv.group * step.max_seqs];
    const InShared unit(room.units[min(group, kGroups - 1)], kv);
    const int row = member_thread() / kValuePieces, dim = member_thread() % kValuePieces * 8;
    key_to = place_of(room, unit.keys + member * InShared::kPieceStride + lane_id() * 16);
    key_from = (member * kPagePositions + lane_id()) * 16;
    value_to = place_of(room, unit.value_at(row, dim));
    value_from = kv.value_begin + (row * kValueRow + dim) * 2;
    settle(columns);
    for (int* number : {&key_to, &value_to, &value_from}) settle(*number);
    if constexpr (kTiles < 8) settle(key_from);  // else scores of a whole unit leave no register for it
  }

  ZINC_DEVICE bool has_newest() const { return kShape.has_keys && (last - first) % n_splits == split; }
  ZINC_DEVICE bool is_single() const { return first == last; }
  ZINC_DEVICE int first_unit(int chunk) const {
    return max(chunk * kChunkUnits, static_cast<int>(static_cast<u32>(oldest) / kUnitPositions));
  }
  ZINC_DEVICE int last_unit(int chunk) const { return min(chunk * kChunkUnits + kChunkUnits - 1, newest_unit); }

  // A group's first unit in the block's chunks from `chunk` on; negative if there is none.
  ZINC_DEVICE int find_unit(int its_group, int chunk) const {
    for (; chunk <= last; chunk += n_splits) {
      const int from = first_unit(chunk), unit = from + ((its_group - from) & (kGroups - 1));
      if (unit <= last_unit(chunk)) return unit;
    }
    return -1;
  }
  static ZINC_DEVICE int chunk_of(int unit) { return unit < 0 ? unit : unit / kChunkUnits; }
  ZINC_DEVICE int next_unit(int unit) const {
    if (unit < 0) return unit;
    if (unit + kGroups <= last_unit(chunk_of(unit))) return unit + kGroups;
    return find_unit(group, chunk_of(unit) + n_splits);
  }
  // The numbers of a unit's pages, to be looked up long before the unit is copied; any for a unit that there is not.
  ZINC_DEVICE int2 find_pages(int unit) const {
    const auto column = [&](int at) {
      return columns[static_cast<u32>(min(max(at, oldest), position)) / kPagePositions];
    };
    return make_int2(column(unit * kUnitPositions), column(unit * kUnitPositions + kPagePositions));
  }

  // All of the unit was there before this step, and nothing is written between its copies.
  ZINC_DEVICE bool is_whole(int unit) const {
    return kIsEven && unit * kUnitPositions >= oldest && unit * kUnitPositions + kUnitPositions <= position;
  }

  // ---- copies, by the threads of a group ----

  // Halves, and a unit's copies are the same for all threads but for where they begin.
  static constexpr int kValuePieces = kValueRow / 8;
  static constexpr bool kIsEven =
      kShape.kv_format == kKvF16 && kKeyBlocks * 4 % kGroupWarps == 0 && kValueRow == kGroupWarps * kUnitDims;
  ZINC_DEVICE int member_thread() const { return static_cast<int>(threadIdx.x) % (kGroupWarps * 32); }
  ZINC_DEVICE UnitPages pages_of(int unit, int2 found, int last_known) const {
    return UnitPages(head_of(kv, found.x, kv_head), head_of(kv, found.y, kv_head), unit, oldest, last_known);
  }
  ZINC_DEVICE void copy_keys(const UnitPages& pages) const {
    const InShared to(room.units[group], kv);
    if constexpr (kIsEven) {  // a warp copies a piece of 32 positions at a time, a lane the same ones of all pieces
      static_assert(kPagePositions == 32);
      const auto is_there = [&](int page) {
        const int at = pages.first + page * kPagePositions + lane_id();
        return at <= pages.last && (kShape.window == 0 || at >= pages.oldest);
      };
      const bool are_there[2] = {is_there(0), is_there(1)};
      constexpr int kTurns = kKeyBlocks * 4 / kGroupWarps, kBytes = kPagePositions * 16;
      u8* at = &in_room<u8>(room, key_to);
#pragma unroll
      for (int k = 0; k < 2 * kTurns; ++k) {
        copy_16_or_clear(at + k * kGroupWarps * InShared::kPieceStride,
                         pages.page[k / kTurns] + key_from + k % kTurns * kGroupWarps * kBytes, are_there[k / kTurns]);
      }
      return;
    }
    if constexpr (kShape.kv_format != kKvF16) return convert_keys<Kv>(to, pages);
#pragma unroll 1
    for (int i = member_thread(); i < kUnitPositions * kKeyBlocks * 4; i += kGroupWarps * 32) {
      const int at = i % kUnitPositions, piece = i / kUnitPositions;
      int place;
      const u8* page = pages.find(at, place);
      Halves<Kv>::copy_key(to.key_at(at, piece), page, kKeyDim, place, piece);
    }
  }
  ZINC_DEVICE void copy_values(int unit, const UnitPages& pages) const {
    constexpr int kPieces = kValuePieces;
    const InShared to(room.units[group], kv);
    if constexpr (kIsEven) {  // the group copies four rows at a time
      constexpr int kTurns = kUnitPositions / 4, kBytes = kValueRow * 2;
      u8* at = &in_room<u8>(room, value_to);
      if (is_whole(unit)) {
#pragma unroll
        for (int k = 0; k < kTurns; ++k) {
          copy_16(at + (k / 4 * 16 + k % 4) * to.value_stride, pages.page[k / 8] + value_from + k % 8 * 4 * kBytes);
        }
        return;
      }
      const int row = member_thread() / kValuePieces;
      const int oldest_row = pages.oldest - pages.first - row, last_row = pages.last - pages.first - row;
#pragma unroll 1
      for (int k = 0; k < kTurns; k += 4, at += 16 * to.value_stride) {
        const u8* first = (k < 8 ? pages.page[0] : pages.page[1]) + value_from + k % 8 * 4 * kBytes;
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const int its = (k + j) * 4;
          copy_16_or_clear(at + j * to.value_stride, first + j * 4 * kBytes,
                           its <= last_row && (kShape.window == 0 || its >= oldest_row));
        }
      }
      return;
    }
    if constexpr (kShape.kv_format != kKvF16) return convert_values<Kv>(to, pages);
#pragma unroll 1
    for (int i = member_thread(); i < kUnitPositions * kPieces; i += kGroupWarps * 32) {
      const int at = i / kPieces, dim = i % kPieces * 8;
      int place;
      const u8* page = pages.find(at, place);
      Halves<Kv>::copy_value(to.value_at(at, dim), page + kv.value_begin, kValueRow, place, dim);
    }
  }
  // Bytes become halves on their way. Several loads of a thread are under way at once: each takes as long as all.
  template <class Bytes>
  ZINC_DEVICE void convert_keys(const InShared& to, const UnitPages& pages) const {
    convert<Bytes, kUnitPositions * kKeyBlocks * 2>(
        [&](int i) {
          int place;
          const u8* page = pages.find(i % kUnitPositions, place);
          return Halves<Bytes>::key_piece(page, kKeyDim, place, i / kUnitPositions);
        },
        [&](int i, int half) { return to.key_at(i % kUnitPositions, i / kUnitPositions * 2 + half); });
  }
  template <class Bytes>
  ZINC_DEVICE void convert_values(const InShared& to, const UnitPages& pages) const {
    constexpr int kPieces = kValueRow / 16;
    convert<Bytes, kUnitPositions * kPieces>(
        [&](int i) {
          int place;
          const u8* page = pages.find(i / kPieces, place);
          return Halves<Bytes>::value_piece(page + kv.value_begin, kValueRow, place, i % kPieces * 16);
        },
        [&](int i, int half) { return to.value_at(i / kPieces, i % kPieces * 16 + half * 8); });
  }
  template <class Bytes, int n_pieces, class Load, class Place>
  ZINC_DEVICE void convert(const Load& load, const Place& place) const {
    constexpr int kAtOnce = 4, kStep = kGroupWarps * 32;
#pragma unroll 1
    for (int first = member_thread(); first < n_pieces; first += kAtOnce * kStep) {
      typename Halves<Bytes>::Piece pieces[kAtOnce];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) pieces[k] = load(min(first + k * kStep, n_pieces - 1));
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        const int i = first + k * kStep;
        if (n_pieces % (kAtOnce * kStep) != 0 && i >= n_pieces) break;
        *reinterpret_cast<uint4*>(place(i, 0)) = pieces[k].first();
        *reinterpret_cast<uint4*>(place(i, 1)) = pieces[k].second();
      }
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
  // Begins to load a group's unit, positions up to last_known: what is past it is zero, or stands for it.
  ZINC_DEVICE void load(int unit, int2 found, int last_known) const {
    if (unit >= 0 && (kIsEven || last_known >= max(unit * kUnitPositions, oldest))) {
      const UnitPages pages = pages_of(unit, found, last_known);
      copy_keys(pages);
      end_copies();
      copy_values(unit, pages);
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
    const bool is_here = block.find_unit(its_group, block.first + block.split) == block.newest_unit;
    const int at = static_cast<u32>(block.position) % kUnitPositions;
    const InShared to(block.room.units[its_group], block.kv);
    const bool has_it = dim < (which == 2 ? kValueRow : kKeyBlocks * 32);
    const void* place = which == 0   ? static_cast<const void*>(block.room.q + warp_id() * kQueryStride + dim)
                        : which == 1 ? to.key_at(at, dim / 8)
                                     : to.value_at(at, dim);
    room = has_it && (which == 0 || (which > 0 && is_here)) ? place_of(block.room, place) : -1;
    if (which > 0 && has_it) {
      u8* head = head_of(block.kv, block.columns[static_cast<u32>(block.position) / kPagePositions], block.kv_head);
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
      halves = put_bytes<Kv>(block.place, x);
    }
    if (room < 0) return;
    if (which == 0) {
      in_room<uint4>(block.room, room + 16) = make_uint4(halves.z, 0, halves.w, 0);
      halves = make_uint4(halves.x, 0, halves.y, 0);
    }
    in_room<uint4>(block.room, room) = halves;
  }
  // Four lanes share a scale, as Bytes::write's whole warp does. Returns what is kept.
  template <class Bytes>
  ZINC_DEVICE uint4 put_bytes(int place, const Eight& x) const {
    typename Bytes::Scale scale;
    const uint2 bytes = Bytes::bytes(x, scale);
    if (page) {
      const int at = which == 1 ? (dim / 16 * kPagePositions + place) * 16 + dim % 16 : place * kValueRow + dim;
      const int block = which == 1 ? dim / 32 * kPagePositions + place : place * (kValueDim / 32) + dim / 32;
      *reinterpret_cast<uint2*>(page + at) = bytes;
      auto* scales =
          reinterpret_cast<typename Bytes::Scale*>(page + (which == 1 ? kKeyDim : kValueDim) * kPagePositions);
      if (dim % 32 == 0) scales[block] = scale;
    }
    return Bytes::halves(bytes, scale);
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
    const int turned = row / 2 * 4 + lane_id() / 16 * 2 + row % 2;
    key = place_of(room, unit.key_at(member * kTiles * 8 + quad, i));
    value = place_of(room, unit.value_at(turned, member * kUnitDims + lane_id() / 8 % 2 * 8));
    query = place_of(room, room.q + quad * kQueryStride + 8 * i);
    weight_to = place_of(room, room.weights[group] + quad * (kWeightStride / 2) + member * kTiles * 4 + i);
    weight_from = place_of(room, room.weights[group] + quad * (kWeightStride / 2) + 2 * i);
    exchange_to = place_of(room, room.exchange[group] + member * kUnitRows + quad);
    exchange = place_of(room, room.exchange[group] + quad);
    result = place_of(room, &room.values[0][min(2 * i, kRows - 1)][member * kUnitDims + quad]);
    for (int* place : {&key, &value, &query, &weight_to, &weight_from, &result}) settle(*place);
    if constexpr (kGroupWarps > 1) {
      for (int* place : {&exchange_to, &exchange}) settle(*place);
    }
  }
  ZINC_DEVICE void meet() const { group_meets<kGroupWarps>(block.group); }

  ZINC_DEVICE void score(float (&scores)[kTiles][4]) const {
    constexpr int kPieceStride = InShared::kPieceStride, kHalf = kKeyBlocks * 4 * kPieceStride;
    clear(scores);
    // Scores of a whole unit leave few registers, and turning bytes into halves takes more.
#pragma unroll(kTiles == 8 && kShape.kv_format != kKvF16 ? 1 : kKeyBlocks <= 4 ? kKeyBlocks : 2)
    for (int b = 0; b < kKeyBlocks; ++b) {
      const uint4 a = in_room<uint4>(block.room, query + b * 128), c = in_room<uint4>(block.room, query + b * 128 + 16);
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
        const int from = key + b * 4 * kPieceStride + t / 4 * kHalf + t % 4 * 128;
        const uint4 k = in_room<uint4>(block.room, from);
        multiply_halves(scores[t], a.x, a.y, a.z, a.w, k.x, k.y);
        multiply_halves(scores[t], c.x, c.y, c.z, c.w, k.z, k.w);
      }
    }
  }
  // Scores as the softmax sees them; the largest of the warp's is returned, and goes to the exchange if there are
  // others.
  ZINC_DEVICE float mask(int unit, float (&scores)[kTiles][4]) const {
    const int position = unit * kUnitPositions + block.member * kTiles * 8 + lane_id() % 4 * 2;
    const int newest = block.position - position, oldest = block.oldest - position;
    float largest[kTiles];
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float& s = scores[t][e];
        s *= scale;
        if constexpr (kShape.has_softcap != 0) s = capped(s);
        if (t * 8 + e > newest || (kShape.window > 0 && t * 8 + e < oldest)) s = lowest_score();
      }
      largest[t] = fmaxf(scores[t][0], scores[t][1]);
    }
#pragma unroll
    for (int step = 1; step < kTiles; step *= 2) {
#pragma unroll
      for (int t = 0; t + step < kTiles; t += 2 * step) largest[t] = fmaxf(largest[t], largest[t + step]);
    }
    largest[0] = lanes_max(largest[0], 4);
    if (kGroupWarps > 1 && lane_id() % 4 == 0) in_room<float>(block.room, exchange_to) = largest[0];
    return largest[0];
  }
  __device__ __noinline__ float capped(float s) const { return softcap * tanhf(s / softcap); }

  // Scores become weights. REQUIRES: the group met after mask().
  ZINC_DEVICE Running soften(float (&scores)[kTiles][4], float largest) const {
    Running all = {largest, 0.0f};
#pragma unroll
    for (int w = 0; kGroupWarps > 1 && w < kGroupWarps; ++w) {
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
    if (kGroupWarps > 1 && lane_id() % 4 == 0) {
      in_room<float>(block.room, exchange_to + kGroupWarps * kUnitRows * 4) = all.sum;
    }
    return all;
  }
  // REQUIRES: the group met after soften(). Values' terms are in the places of weigh_sixteen(): a lane names the rows
  // of matrices, positions 4 j and 4 j + 1 of 16, then 4 j + 2 and 4 j + 3, for two times eight dimensions. Dimensions
  // are the rows of what is multiplied, which has 16 of them, and rows of the unit its columns, of which there are 8.
  ZINC_DEVICE void weigh(int unit, Running all) const {
    const int u = static_cast<u32>(unit) % kChunkUnits, quad = lane_id() / 4, i = lane_id() % 4;
    float values[kUnitDims / 16][4];
    if (kGroupWarps > 1) all.sum = in_room<float>(block.room, exchange + kGroupWarps * kUnitRows * 4);
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
        const uint4 v = load_turned(&in_room<u8>(block.room, value), k * 16 * kStride + d * 32);
        multiply_halves(values[d], v.x, v.y, v.z, v.w, a.x, a.y);
      }
    }
    if (block.member == 0 && i == 0 && quad < kRows) block.room.runs[u][quad] = all;
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      if (2 * i + e >= kRows) continue;
#pragma unroll
      for (int d = 0; d < kUnitDims / 16; ++d) {
        if (kValueRow % 64 != 0 && block.member * kUnitDims + 16 * d >= kValueRow) continue;
        const int to = result + u * kUnitGap + e * kSumRow * 4 + d * 64;
        in_room<float>(block.room, to) = values[d][e];
        in_room<float>(block.room, to + 32) = values[d][e + 2];
      }
    }
  }

  // All of it; the results go to the room, and the unit after it, in the pages found, is on its way. next: negative if
  // none is.
  ZINC_DEVICE void attend(int unit, int next, int2 found) {
    float scores[kTiles][4];
    await();  // the keys
    score(scores);
    const float largest = mask(unit, scores);
    meet();  // the keys have been read
    if (next >= 0) block.copy_keys(block.pages_of(next, found, block.position));
    end_copies();
    const Running all = soften(scores, largest);
    await();  // the values; and weights have been written
    weigh(unit, all);
    if (next >= 0) {
      meet();  // values and weights have been read
      block.copy_values(next, block.pages_of(next, found, block.position));
    }
    end_copies();
  }
  // Until what was begun before the last set of copies is there, for the whole group.
  ZINC_DEVICE void await() const {
    await_copies<1>();
    meet();
  }
};

}  // namespace zinc::simt
