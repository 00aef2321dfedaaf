// One block of attention_decode.cu or one unit of attention_units.cu: its heads and chunks, the loads of KV tiles into
// shared memory, the stores of new heads, and the scores, softmax and P * V of one KV tile, with the arithmetic of
// attention_mma.h for up to eight rows.
#pragma once

#include "backend/simt/attention_decode_head.h"

namespace zinc::simt {

// The thread's index, computed anew for each unit: what depends on it would otherwise be computed before the loop over
// units and take registers in all of it.
ZINC_DEVICE int thread_of_unit() {
  int thread = static_cast<int>(threadIdx.x);
  if constexpr (!kShape.prepares_heads) keep_in_register(thread);
  return thread;
}

// One block: some heads that share keys, and every n_splits-th chunk of their visible positions.
struct DecodeBlock {
  static constexpr int kTilesPerKvHead = (kShape.heads_per_kv_head + kRows - 1) / kRows;
  const AttentionParams& p;
  DecodeSmem& smem;
  KvLayer kv;
  int kv_head, first_head, n_heads, position, oldest;
  int newest_tile, page_offset;      // of the new token: its KV tile, and its offset in its page
  int first, last, split, n_splits;  // chunks
  const int* columns;                // page table: the page of each 32 positions
  int warp_group, warp_in_group;     // of the warp
  // Offsets of a thread's first copies of a tile: in shared memory, and in a head's page.
  int key_to, key_from, value_to, value_from;

  // The step's only token.
  ZINC_DEVICE DecodeBlock(const AttentionParams& init_p, DecodeSmem& init_smem)
      : p(init_p), smem(init_smem), kv(init_p.kv) {
    const int n_tiles = kv.kv_heads * kTilesPerKvHead;
    split = static_cast<int>(blockIdx.x) / n_tiles;
    init_heads(static_cast<int>(blockIdx.x) - split * n_tiles);
    init_position(p.step.positions[0]);  // uploaded before the step's first kernel
    first = first_visible();
    last = last_visible();
    n_splits = min(static_cast<int>(gridDim.x) / n_tiles, last - first + 1);
    const Step& step = p.step;
    columns = step.counts + step.counts[kPageTableOffset + kv.group] - step.first_column[kv.group * step.max_seqs];
    init_copies();
  }
  // Consecutive chunks of a row.
  ZINC_DEVICE DecodeBlock(const AttentionParams& init_p, DecodeSmem& init_smem, const AttentionUnit& unit, int tile)
      : p(init_p), smem(init_smem), kv(init_p.kv) {
    split = 0;
    n_splits = 1;
    init_heads(tile);
    init_position(unit.position);
    first = unit.first_chunk;
    last = unit.end_chunk - 1;
    columns = p.step.counts + unit.page_row;
    init_copies();
  }
  ZINC_DEVICE void init_heads(int tile) {
    kv.k_dim = kKeyDim;
    kv.v_dim = kValueDim;
    kv_head = tile / kTilesPerKvHead;
    const int head_offset = tile % kTilesPerKvHead * kRows;
    first_head = kv_head * kShape.heads_per_kv_head + head_offset;
    n_heads = min(kRows, kShape.heads_per_kv_head - head_offset);
  }
  ZINC_DEVICE void init_position(int init_position) {
    position = init_position;
    oldest = kShape.window > 0 ? max(0, position - kShape.window + 1) : 0;
    newest_tile = static_cast<int>(static_cast<u32>(position) / kKvTilePositions);
    page_offset = static_cast<int>(static_cast<u32>(position) % kPageTokens);
  }
  ZINC_DEVICE void init_copies() {
    const int warp = thread_of_unit() / 32;
    warp_group = warp / kGroupWarps;
    warp_in_group = warp % kGroupWarps;
    const SmemKv kv_tile(smem.kv_tiles[min(warp_group, kWarpGroups - 1)], kv);
    const int row = thread_in_group() / kValuePieces, dim = thread_in_group() % kValuePieces * 8;
    key_to = smem_offset(smem, kv_tile.keys + warp_in_group * SmemKv::kPieceStride + lane_id() * 16);
    key_from = (warp_in_group * kPageTokens + lane_id()) * 16;
    value_to = smem_offset(smem, kv_tile.value_at(row, dim));
    value_from = kv.value_begin + (row * kValueRow + dim) * 2;
    if constexpr (kShape.prepares_heads) keep_in_register(columns);
    for (int* value : {&key_to, &value_to, &value_from}) keep_in_register(*value);
    if constexpr (kTiles < 8) keep_in_register(key_from);  // else the scores of the tile need all registers
  }

  // Chunks of the row.
  ZINC_DEVICE int first_visible() const { return static_cast<int>(static_cast<u32>(oldest) / kChunkPositions); }
  ZINC_DEVICE int last_visible() const { return static_cast<int>(static_cast<u32>(position) / kChunkPositions); }
  ZINC_DEVICE bool has_newest() const { return kShape.has_keys && (last - first) % n_splits == split; }
  ZINC_DEVICE bool is_single() const { return first == last; }
  ZINC_DEVICE int first_tile(int chunk) const {
    return max(chunk * kChunkTiles, static_cast<int>(static_cast<u32>(oldest) / kKvTilePositions));
  }
  ZINC_DEVICE int last_tile(int chunk) const { return min(chunk * kChunkTiles + kChunkTiles - 1, newest_tile); }

  // A warp group's first tile in the block's chunks, starting with `chunk`; negative: none.
  ZINC_DEVICE int find_tile(int warp_group_of_tile, int chunk) const {
    for (; chunk <= last; chunk += n_splits) {
      const int from = first_tile(chunk), kv_tile = from + ((warp_group_of_tile - from) & (kWarpGroups - 1));
      if (kv_tile <= last_tile(chunk)) return kv_tile;
    }
    return -1;
  }
  static ZINC_DEVICE int chunk_of(int kv_tile) { return kv_tile < 0 ? kv_tile : kv_tile / kChunkTiles; }
  ZINC_DEVICE int next_tile(int kv_tile, int warp_group_of_tile) const {
    if (kv_tile < 0) return kv_tile;
    if (kv_tile + kWarpGroups <= last_tile(chunk_of(kv_tile))) return kv_tile + kWarpGroups;
    return find_tile(warp_group_of_tile, chunk_of(kv_tile) + n_splits);
  }
  ZINC_DEVICE int next_tile(int kv_tile) const { return next_tile(kv_tile, warp_group); }
  // Page ids of a tile, loaded long before its copy; arbitrary valid pages if the tile does not exist.
  ZINC_DEVICE int2 page_ids(int kv_tile) const {
    const auto column = [&](int pos) {
      return columns[static_cast<u32>(min(max(pos, oldest), position)) / kPageTokens];
    };
    return make_int2(column(kv_tile * kKvTilePositions), column(kv_tile * kKvTilePositions + kPageTokens));
  }

  // All positions of the tile were written by earlier steps, so no new key or value is stored into it.
  ZINC_DEVICE bool is_fully_cached(int kv_tile) const {
    return kUniformCopies && kv_tile * kKvTilePositions >= oldest &&
           kv_tile * kKvTilePositions + kKvTilePositions <= position;
  }

  // ---- loads, by the threads of a group ----

  // f16, and all threads issue the same number of copies at fixed offsets from their first.
  static constexpr int kValuePieces = kValueRow / 8;
  static constexpr bool kUniformCopies =
      Kv::kBits == 16 && kKeyBlocks * 4 % kGroupWarps == 0 && kValueRow == kGroupWarps * kWarpDims;
  ZINC_DEVICE int thread_in_group() const { return thread_of_unit() % (kGroupWarps * 32); }
  ZINC_DEVICE KvTilePages pages_of(int kv_tile, int2 pages_of_tile, int last_ready) const {
    return KvTilePages(head_of(kv, pages_of_tile.x, kv_head), head_of(kv, pages_of_tile.y, kv_head), kv_tile, oldest,
                       last_ready);
  }
  // A position that load_new() copies.
  ZINC_DEVICE bool is_new(int pos, const KvTilePages& pages) const { return pos > pages.last && pos <= position; }
  template <bool skips_new>
  ZINC_DEVICE void copy_keys(const KvTilePages& pages) const {
    const SmemKv to(smem.kv_tiles[warp_group], kv);
    if constexpr (kUniformCopies) {  // a warp copies one piece of 32 positions per step
      static_assert(kPageTokens == 32);
      const auto position_of = [&](int page) { return pages.first + page * kPageTokens + lane_id(); };
      const auto is_visible = [&](int page) {
        return position_of(page) <= pages.last && (kShape.window == 0 || position_of(page) >= pages.oldest);
      };
      const bool page_visible[2] = {is_visible(0), is_visible(1)};
      const bool page_new[2] = {skips_new && is_new(position_of(0), pages), skips_new && is_new(position_of(1), pages)};
      constexpr int kSteps = kKeyBlocks * 4 / kGroupWarps, kBytes = kPageTokens * 16;
      u8* dst = &smem_at<u8>(smem, key_to);
#pragma unroll
      for (int k = 0; k < 2 * kSteps; ++k) {
        if (page_new[k / kSteps]) continue;
        cp_async_16_zfill(dst + k * kGroupWarps * SmemKv::kPieceStride,
                          pages.page[k / kSteps] + key_from + k % kSteps * kGroupWarps * kBytes,
                          page_visible[k / kSteps]);
      }
      return;
    }
    if constexpr (Kv::kBits != 16) return convert_keys<Kv>(to, pages);
#pragma unroll 1
    for (int i = thread_in_group(); i < kKvTilePositions * kKeyBlocks * 4; i += kGroupWarps * 32) {
      const int pos = i % kKvTilePositions, piece = i / kKvTilePositions;
      if (skips_new && is_new(pages.first + pos, pages)) continue;
      int page_offset;
      const u8* page = pages.find(pos, page_offset);
      KvAsF16<Kv>::copy_key(to.key_at(pos, piece), page, kKeyDim, page_offset, piece);
    }
  }
  template <bool skips_new>
  ZINC_DEVICE void copy_values(const KvTilePages& pages) const {
    constexpr int kPieces = kValuePieces;
    const SmemKv to(smem.kv_tiles[warp_group], kv);
    if constexpr (kUniformCopies) {  // the group copies four rows per step
      constexpr int kSteps = kKvTilePositions / 4, kBytes = kValueRow * 2;
      u8* dst = &smem_at<u8>(smem, value_to);
      if (pages.first >= pages.oldest && pages.first + kKvTilePositions - 1 <= pages.last) {
#pragma unroll
        for (int k = 0; k < kSteps; ++k) {
          cp_async_16(dst + (k / 4 * 16 + k % 4) * to.value_stride,
                      pages.page[k / 8] + value_from + k % 8 * 4 * kBytes);
        }
        return;
      }
      const int row = thread_in_group() / kValuePieces;
      const int oldest_row = pages.oldest - pages.first - row, last_row = pages.last - pages.first - row;
#pragma unroll 1
      for (int k = 0; k < kSteps; k += 4, dst += 16 * to.value_stride) {
        const u8* first = (k < 8 ? pages.page[0] : pages.page[1]) + value_from + k % 8 * 4 * kBytes;
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const int row_step = (k + j) * 4;
          if (skips_new && is_new(pages.first + row + row_step, pages)) continue;
          cp_async_16_zfill(dst + j * to.value_stride, first + j * 4 * kBytes,
                            row_step <= last_row && (kShape.window == 0 || row_step >= oldest_row));
        }
      }
      return;
    }
    if constexpr (Kv::kBits != 16) return convert_values<Kv>(to, pages);
#pragma unroll 1
    for (int i = thread_in_group(); i < kKvTilePositions * kPieces; i += kGroupWarps * 32) {
      const int pos = i / kPieces, dim = i % kPieces * 8;
      if (skips_new && is_new(pages.first + pos, pages)) continue;
      int page_offset;
      const u8* page = pages.find(pos, page_offset);
      KvAsF16<Kv>::copy_value(to.value_at(pos, dim), page + kv.value_begin, kValueRow, page_offset, dim);
    }
  }
  // Converts quantized elements to f16. Several loads per thread are in flight to hide latency.
  template <class Quants>
  ZINC_DEVICE void convert_keys(const SmemKv& to, const KvTilePages& pages) const {
    convert<Quants, kKvTilePositions * kKeyBlocks * 2>(
        [&](int i) {
          int page_offset;
          const u8* page = pages.find(i % kKvTilePositions, page_offset);
          return KvAsF16<Quants>::key_piece(page, kKeyDim, page_offset, i / kKvTilePositions);
        },
        [&](int i, int half) { return to.key_at(i % kKvTilePositions, i / kKvTilePositions * 2 + half); });
  }
  template <class Quants>
  ZINC_DEVICE void convert_values(const SmemKv& to, const KvTilePages& pages) const {
    constexpr int kPieces = kValueRow / 16;
    convert<Quants, kKvTilePositions * kPieces>(
        [&](int i) {
          int page_offset;
          const u8* page = pages.find(i / kPieces, page_offset);
          return KvAsF16<Quants>::value_piece(page + kv.value_begin, kValueRow, page_offset, i % kPieces * 16);
        },
        [&](int i, int half) { return to.value_at(i / kPieces, i % kPieces * 16 + half * 8); });
  }
  template <class Quants, int n_pieces, class Load, class Dest>
  ZINC_DEVICE void convert(const Load& load, const Dest& dest) const {
    constexpr int kInFlight = 4, kStep = kGroupWarps * 32;
#pragma unroll 1
    for (int first = thread_in_group(); first < n_pieces; first += kInFlight * kStep) {
      typename KvAsF16<Quants>::Piece pieces[kInFlight];
#pragma unroll
      for (int k = 0; k < kInFlight; ++k) pieces[k] = load(min(first + k * kStep, n_pieces - 1));
#pragma unroll
      for (int k = 0; k < kInFlight; ++k) {
        const int i = first + k * kStep;
        if (n_pieces % (kInFlight * kStep) != 0 && i >= n_pieces) break;
        *reinterpret_cast<uint4*>(dest(i, 0)) = pieces[k].first();
        *reinterpret_cast<uint4*>(dest(i, 1)) = pieces[k].second();
      }
    }
  }
  ZINC_DEVICE void clear_values() const {
    constexpr int kPieces = kValueRow / 8;
    const SmemKv to(smem.kv_tiles[warp_group], kv);
#pragma unroll 1
    for (int i = thread_in_group(); i < kKvTilePositions * kPieces; i += kGroupWarps * 32) {
      *reinterpret_cast<uint4*>(to.value_at(i / kPieces, i % kPieces * 8)) = make_uint4(0, 0, 0, 0);
    }
  }
  // Starts the loads of a group's tile, positions up to last_ready; later positions are zero or repeat it.
  template <bool skips_new = false>
  ZINC_DEVICE void load(int kv_tile, int2 pages_of_tile, int last_ready) const {
    if (kv_tile >= 0 && (kUniformCopies || last_ready >= max(kv_tile * kKvTilePositions, oldest))) {
      const KvTilePages pages = pages_of(kv_tile, pages_of_tile, last_ready);
      copy_keys<skips_new>(pages);
      cp_async_commit();
      copy_values<skips_new>(pages);
    } else if (kv_tile >= 0) {
      clear_values();
    }
    cp_async_commit();
  }
  // Units, in two parts: before the wait what earlier steps have written, after it the positions of this step.
  // Quantized tiles with both are loaded after the wait: their loads go through L1, which could keep the older lines.
  ZINC_DEVICE bool is_cached(int kv_tile, int n_cached) const {
    return kv_tile * kKvTilePositions + kKvTilePositions <= n_cached;
  }
  // REQUIRES: __syncthreads after the load() before.
  ZINC_DEVICE void load_new(int kv_tile, int2 pages_of_tile, int n_cached) const {
    if (kv_tile < 0 || is_cached(kv_tile, n_cached)) return;
    if constexpr (Kv::kBits != 16) return load(kv_tile, pages_of_tile, position);
    constexpr int kKeyPieces = kKeyBlocks * 4, kPieces = kKeyPieces + kValuePieces;
    const KvTilePages pages = pages_of(kv_tile, pages_of_tile, position);
    const SmemKv to(smem.kv_tiles[warp_group], kv);
    const int begin = max(max(pages.first, n_cached), oldest),
              n = min(pages.first + kKvTilePositions, position + 1) - begin;
#pragma unroll 1
    for (int i = thread_in_group(); i < n * kPieces; i += kGroupWarps * 32) {
      const int pos = begin - pages.first + i / kPieces, piece = i % kPieces;
      int page_offset;
      const u8* page = pages.find(pos, page_offset);
      if (piece < kKeyPieces) {
        KvAsF16<Kv>::copy_key(to.key_at(pos, piece), page, kKeyDim, page_offset, piece);
      } else {
        const int dim = (piece - kKeyPieces) * 8;
        KvAsF16<Kv>::copy_value(to.value_at(pos, dim), page + kv.value_begin, kValueRow, page_offset, dim);
      }
    }
    cp_async_commit();
    cp_async_commit();  // attend() waits for all but the last group, so for the keys in this one too
  }
  // To L2.
  ZINC_DEVICE void prefetch(int kv_tile, int2 pages_of_tile) const {
    constexpr int kLine = 128;
    const u8* pages[2] = {head_of(kv, pages_of_tile.x, kv_head), head_of(kv, pages_of_tile.y, kv_head)};
    const int n_pages = kv_tile * kKvTilePositions + kPageTokens <= position ? 2 : 1;
#pragma unroll 1
    for (int offset = thread_in_group() * kLine; offset < n_pages * kv.head_bytes; offset += kGroupWarps * 32 * kLine) {
      prefetch_l2(offset < kv.head_bytes ? pages[0] + offset : pages[1] + (offset - kv.head_bytes));
    }
  }

  // ---- heads ----

  // QkvIndex of the warp; -1: none. Warps 0 to kRows - 1 compute the queries, the next two the key and the value;
  // blocks that share a KV head write the same bytes.
  ZINC_DEVICE int part_of_warp() const {
    const int part = warp_id() < kRows ? kQuery : warp_id() - kRows + kKey;
    if (part == kQuery) return warp_id() < n_heads ? kQuery : -1;
    return part <= kValue && has_newest() ? part : -1;
  }
};

// Destination of a lane's eight elements of a head: queries go to shared memory; a key or value to its page, and into
// its tile if that is already in shared memory (else the tile is loaded from the page later).
struct HeadDestination {
  int part, dim;  // part: QkvIndex; -1: none
  int smem;       // offset; negative: none
  u8* page;

  ZINC_DEVICE void init(const DecodeBlock& block, int init_part, int init_dim) {
    part = init_part;
    dim = init_dim;
    page = nullptr;
    const int warp_group_of_tile = static_cast<int>(static_cast<u32>(block.newest_tile) % kWarpGroups);
    const bool tile_in_smem = block.find_tile(warp_group_of_tile, block.first + block.split) == block.newest_tile;
    const int pos = static_cast<u32>(block.position) % kKvTilePositions;
    const SmemKv to(block.smem.kv_tiles[warp_group_of_tile], block.kv);
    const bool in_head_dim = dim < (part == kValue ? kValueRow : kKeyBlocks * 32);
    const void* to_smem = part == kQuery ? static_cast<const void*>(block.smem.q + warp_id() * kQueryStride + dim)
                          : part == kKey ? to.key_at(pos, dim / 8)
                                         : to.value_at(pos, dim);
    smem = in_head_dim && (part == kQuery || (part > kQuery && tile_in_smem)) ? smem_offset(block.smem, to_smem) : -1;
    if (part > kQuery && in_head_dim) {
      u8* head = head_of(block.kv, block.columns[static_cast<u32>(block.position) / kPageTokens], block.kv_head);
      page = head + (part == kKey ? 0 : block.kv.value_begin);
      if constexpr (Kv::kBits == 16) {
        page +=
            part == kKey ? (dim / 8 * kPageTokens + block.page_offset) * 16 : (block.page_offset * kValueRow + dim) * 2;
      }
    }
    keep_in_register(smem);
    keep_in_register(page);
  }

  ZINC_DEVICE void store(const DecodeBlock& block, Vec8 x) const {
    if constexpr (Kv::kTransformsKeys) {
      if (part != kValue) hadamard_32(x.v, part == kKey ? kKeyFactor : kQueryFactor);
    }
    uint4 f16 = to_f16(x);
    if constexpr (Kv::kBits == 16) {
      if (page) *reinterpret_cast<uint4*>(page) = f16;
    } else if (part > kQuery) {
      f16 = store_quants<Kv>(block.page_offset, x);
    }
    if (smem < 0) return;
    if (part == kQuery) {
      smem_at<uint4>(block.smem, smem + 16) = make_uint4(f16.z, 0, f16.w, 0);
      f16 = make_uint4(f16.x, 0, f16.y, 0);
    }
    smem_at<uint4>(block.smem, smem) = f16;
  }
  // Four lanes share a scale, as in Quants::write. Returns the stored values as f16.
  template <class Quants>
  ZINC_DEVICE uint4 store_quants(int page_offset, const Vec8& x) const {
    typename Quants::Scale scale;
    const typename Quants::Eight eight = Quants::quantize_vec8(x, scale);
    if (page) {
      const int offset =
          part == kKey ? key_offset<Quants>(page_offset, dim) : value_offset<Quants>(page_offset, kValueRow, dim);
      const int block = part == kKey ? dim / 32 * kPageTokens + page_offset : page_offset * (kValueDim / 32) + dim / 32;
      *reinterpret_cast<typename Quants::Eight*>(page + offset) = eight;
      auto* scales =
          reinterpret_cast<typename Quants::Scale*>(page + scales_offset<Quants>(part == kKey ? kKeyDim : kValueDim));
      if (dim % 32 == 0) scales[block] = scale;
    }
    return Quants::to_f16(eight, scale);
  }
};

// A lane's view of a KV tile in shared memory.
struct DecodeKvTile {
  static constexpr int kTileStride = static_cast<int>(sizeof(DecodeSmem::values) / kChunkTiles);
  const DecodeBlock& block;
  float scale, softcap;
  // Shared memory offsets of the lane's keys, values, queries and results; of P and reduce_buf, for stores and loads.
  int key, value, query, p_store, p_load, reduce_store, reduce_load, result;

  ZINC_DEVICE explicit DecodeKvTile(const DecodeBlock& init_block)
      : block(init_block), scale(init_block.p.scale), softcap(init_block.p.softcap) {
    DecodeSmem& smem = block.smem;
    const int lane = thread_of_unit() % 32, quad = lane / 4, lane_in_quad = lane % 4, row = lane % 8,
              warp_in_group = block.warp_in_group;
    const int warp_group = min(block.warp_group, kWarpGroups - 1);
    const SmemKv kv_tile(smem.kv_tiles[warp_group], block.kv);
    const int rotated = row / 2 * 4 + lane / 16 * 2 + row % 2;
    key = smem_offset(smem, kv_tile.key_at(warp_in_group * kTiles * 8 + quad, lane_in_quad));
    value = smem_offset(smem, kv_tile.value_at(rotated, warp_in_group * kWarpDims + lane / 8 % 2 * 8));
    query = smem_offset(smem, smem.q + quad * kQueryStride + 8 * lane_in_quad);
    p_store = smem_offset(
        smem, smem.p_tile[warp_group] + quad * (kProbStride / 2) + warp_in_group * kTiles * 4 + lane_in_quad);
    p_load = smem_offset(smem, smem.p_tile[warp_group] + quad * (kProbStride / 2) + 2 * lane_in_quad);
    reduce_store = smem_offset(smem, smem.reduce_buf[warp_group] + warp_in_group * kMmaRows + quad);
    reduce_load = smem_offset(smem, smem.reduce_buf[warp_group] + quad);
    result = smem_offset(smem, &smem.values[0][min(2 * lane_in_quad, kRows - 1)][warp_in_group * kWarpDims + quad]);
    for (int* offset : {&key, &value, &query, &p_store, &p_load, &result}) keep_in_register(*offset);
    if constexpr (kGroupWarps > 1) {
      for (int* offset : {&reduce_store, &reduce_load}) keep_in_register(*offset);
    }
  }
  ZINC_DEVICE void sync() const { warp_group_sync<kGroupWarps>(block.warp_group); }

  ZINC_DEVICE void score(float (&scores)[kTiles][4]) const {
    constexpr int kPieceStride = SmemKv::kPieceStride, kHalf = kKeyBlocks * 4 * kPieceStride;
    clear(scores);
    // With 8-bit KV caches, conversions and the scores of a tile would need too many registers if unrolled.
#pragma unroll(kTiles == 8 && Kv::kBits != 16 ? 1 : kKeyBlocks <= 4 ? kKeyBlocks : 2)
    for (int b = 0; b < kKeyBlocks; ++b) {
      const uint4 a = smem_at<uint4>(block.smem, query + b * 128), c = smem_at<uint4>(block.smem, query + b * 128 + 16);
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
        const int from = key + b * 4 * kPieceStride + t / 4 * kHalf + t % 4 * 128;
        const uint4 k = smem_at<uint4>(block.smem, from);
        mma_m16n8k16_f16(scores[t], a.x, a.y, a.z, a.w, k.x, k.y);
        mma_m16n8k16_f16(scores[t], c.x, c.y, c.z, c.w, k.z, k.w);
      }
    }
  }
  // Applies scale, softcap and mask. Returns the warp's row maximum, which also goes to reduce_buf if the group has
  // more warps.
  ZINC_DEVICE float mask(int kv_tile, float (&scores)[kTiles][4]) const {
    const int position = kv_tile * kKvTilePositions + block.warp_in_group * kTiles * 8 + lane_id() % 4 * 2;
    const int newest = block.position - position, oldest = block.oldest - position;
    float row_max[kTiles];
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float& s = scores[t][e];
        s *= scale;
        if constexpr (kShape.has_softcap != 0) s = capped(s);
        if (t * 8 + e > newest || (kShape.window > 0 && t * 8 + e < oldest)) s = neg_inf();
      }
      row_max[t] = fmaxf(scores[t][0], scores[t][1]);
    }
#pragma unroll
    for (int step = 1; step < kTiles; step *= 2) {
#pragma unroll
      for (int t = 0; t + step < kTiles; t += 2 * step) row_max[t] = fmaxf(row_max[t], row_max[t + step]);
    }
    row_max[0] = warp_max(row_max[0], 4);
    if (kGroupWarps > 1 && lane_id() % 4 == 0) smem_at<float>(block.smem, reduce_store) = row_max[0];
    return row_max[0];
  }
  __device__ __noinline__ float capped(float s) const { return softcap * tanhf(s / softcap); }

  // Scores become softmax probabilities, not yet normalized. REQUIRES: sync() after mask().
  ZINC_DEVICE SoftmaxState softmax(float (&scores)[kTiles][4], float row_max) const {
    SoftmaxState all = {row_max, 0.0f};
#pragma unroll
    for (int w = 0; kGroupWarps > 1 && w < kGroupWarps; ++w) {
      all.max = fmaxf(all.max, smem_at<float>(block.smem, reduce_load + w * kMmaRows * 4));
    }
    const float offset = all.max == neg_inf() ? 0.0f : all.max;  // avoids inf - inf
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        scores[t][e] = exp2_approx((scores[t][e] - offset) * kLog2E);
        all.sum += scores[t][e];
      }
      smem_at<u32>(block.smem, p_store + t * 16) = pack_f16x2(scores[t][0], scores[t][1]);
    }
    all.sum = warp_sum(all.sum, 4);
    if (kGroupWarps > 1 && lane_id() % 4 == 0) {
      smem_at<float>(block.smem, reduce_store + kGroupWarps * kMmaRows * 4) = all.sum;
    }
    return all;
  }
  // P * V. REQUIRES: sync() after softmax(). The terms have the order of KvTileResult: a lane's ldmatrix rows are
  // positions 4 j and 4 j + 1 of 16, then 4 j + 2 and 4 j + 3, for two times eight dimensions. The MMA is transposed:
  // its 16 rows are dimensions, its 8 columns query rows.
  ZINC_DEVICE void multiply_values(int kv_tile, SoftmaxState all) const {
    const int tile_in_chunk = static_cast<u32>(kv_tile) % kChunkTiles, quad = lane_id() / 4,
              lane_in_quad = lane_id() % 4;
    float values[kWarpDims / 16][4];
    if (kGroupWarps > 1) all.sum = smem_at<float>(block.smem, reduce_load + kGroupWarps * kMmaRows * 4);
#pragma unroll
    for (int w = 1; w < kGroupWarps; ++w) {
      all.sum += smem_at<float>(block.smem, reduce_load + (kGroupWarps + w) * kMmaRows * 4);
    }
    clear(values);
    constexpr int kStride = (kValueRow + 63) / 64 * 128 + 32;
#pragma unroll
    for (int k = 0; k < kKvTilePositions / 16; ++k) {
      const uint2 a = smem_at<uint2>(block.smem, p_load + k * 32);
#pragma unroll
      for (int d = 0; d < kWarpDims / 16; ++d) {
        const uint4 v = ldmatrix_x4_trans(&smem_at<u8>(block.smem, value), k * 16 * kStride + d * 32);
        mma_m16n8k16_f16(values[d], v.x, v.y, v.z, v.w, a.x, a.y);
      }
    }
    if (block.warp_in_group == 0 && lane_in_quad == 0 && quad < kRows)
      block.smem.softmax_states[tile_in_chunk][quad] = all;
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      if (2 * lane_in_quad + e >= kRows) continue;
#pragma unroll
      for (int d = 0; d < kWarpDims / 16; ++d) {
        if (kValueRow % 64 != 0 && block.warp_in_group * kWarpDims + 16 * d >= kValueRow) continue;
        const int to = result + tile_in_chunk * kTileStride + e * kTileRowFloats * 4 + d * 64;
        smem_at<float>(block.smem, to) = values[d][e];
        smem_at<float>(block.smem, to + 32) = values[d][e + 2];
      }
    }
  }

  // Attends to a tile, stores its results in shared memory, and starts the loads of the next one. next: negative if
  // none.
  ZINC_DEVICE void attend(int kv_tile, int next, int2 pages_of_tile) {
    float scores[kTiles][4];
    wait_copies();  // the keys have arrived
    score(scores);
    const float row_max = mask(kv_tile, scores);
    sync();                                                             // the keys have been read
    constexpr bool kCopiesEarly = kShape.prepares_heads || kTiles < 8;  // else the scores need all registers
    if (kCopiesEarly && next >= 0) block.copy_keys<false>(block.pages_of(next, pages_of_tile, block.position));
    if (kCopiesEarly) cp_async_commit();
    const SoftmaxState all = softmax(scores, row_max);
    if (!kCopiesEarly && next >= 0) block.copy_keys<false>(block.pages_of(next, pages_of_tile, block.position));
    if (!kCopiesEarly) cp_async_commit();
    wait_copies();  // the values have arrived, P has been stored
    multiply_values(kv_tile, all);
    if (next >= 0) {
      sync();  // values and P have been read
      block.copy_values<false>(block.pages_of(next, pages_of_tile, block.position));
    }
    cp_async_commit();
  }
  // Waits for all but the last commit group, for the whole warp group.
  ZINC_DEVICE void wait_copies() const {
    cp_async_wait<1>();
    sync();
  }
};

}  // namespace zinc::simt
