// src/backend/simt/wgmma.h for the host: each warp computes its own rows; B is read from shared memory. Both happen in
// the wait, no sooner.
#pragma once

#include "backend/simt/device_common.h"

namespace zinc::simt {

using u64 = unsigned long long;

inline int swizzled_offset(int row, int piece) { return row * 128 + ((piece ^ (row & 7)) << 4); }

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

template <int n>
void setmaxnreg_dec() {}
template <int n>
void setmaxnreg_inc() {}
inline void fence_proxy_async() {}
inline u64 wgmma_descriptor(u32 address) {
  return static_cast<u64>((address & 0x3FFFFu) >> 4) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}
inline void wgmma_fence() {}
template <class Product>
void begin_product(const Product& product) {
  static_assert(__is_trivially_copyable(Product));
  emulated_wgmma([](const void* of) { (*static_cast<const Product*>(of))(); }, &product, sizeof product);
}
inline void wgmma_commit() { emulated_wgmma_commit(); }
template <int n>
void wgmma_wait() {
  emulated_wgmma_wait(n);
}
template <int R>
void wgmma_fence_operand(int (&)[R]) {}
template <int R>
void wgmma_fence_operand(float (&)[R]) {}

// A byte of a tile's row, of the 32 from the descriptor's address on: the swizzle permutes 16-byte pieces.
inline u8 tile_byte(u64 tile, int row, int byte) {
  u32 at = static_cast<u32>((tile & 0x3FFF) << 4) + static_cast<u32>(row * 128 + byte);
  at ^= (at >> 7 & 7) << 4;
  return static_cast<u8>(emulated_shared[at]);
}

// The 32 bytes of the lane's two rows, 8 apart.
struct Rows {
  u32 words[2][8];
};
inline Rows whole_rows(const u32 (&a)[4]) {
  const auto lanes = emulated_lanes(make_uint4(a[0], a[1], a[2], a[3]));
  Rows rows;
  for (int i = 0; i < 4; ++i) {
    const uint4 words = lanes(emulated_lane() / 4 * 4 + i);
    rows.words[0][i] = words.x;
    rows.words[1][i] = words.y;
    rows.words[0][4 + i] = words.z;
    rows.words[1][4 + i] = words.w;
  }
  return rows;
}

template <bool is_signed, int R>
void wgmma_i8(int (&d)[R], const u32 (&a)[4], u64 b, int adds) {
  begin_product([&d, rows = whole_rows(a), b, adds] {
    for (int i = 0; i < R; ++i) {
      const u8* row = reinterpret_cast<const u8*>(rows.words[i % 4 / 2]);
      const int column = i / 4 * 8 + emulated_lane() % 4 * 2 + i % 2;
      int sum = adds ? d[i] : 0;
      for (int k = 0; k < 32; ++k) {
        const int x = is_signed ? static_cast<int8_t>(row[k]) : static_cast<int>(row[k]);
        sum += x * static_cast<int8_t>(tile_byte(b, column, k));
      }
      d[i] = sum;
    }
  });
}

inline float tile_bfloat(u64 tile, int row, int i) {
  return __uint_as_float(static_cast<u32>(tile_byte(tile, row, 2 * i)) << 16 |
                         static_cast<u32>(tile_byte(tile, row, 2 * i + 1)) << 24);
}
// REQUIRES: sums that are exact in float; our kernels need no other.
inline void wgmma_bf16(float (&d)[32], const u32 (&a)[4], u64 b, int adds) {
  begin_product([&d, rows = whole_rows(a), b, adds] {
    for (int i = 0; i < 32; ++i) {
      const u16* row = reinterpret_cast<const u16*>(rows.words[i % 4 / 2]);
      const int column = i / 4 * 8 + emulated_lane() % 4 * 2 + i % 2;
      double sum = adds ? d[i] : 0;
      for (int k = 0; k < 16; ++k) {
        sum += static_cast<double>(bfloat_to_float(row[k])) * tile_bfloat(b, column, k);
      }
      d[i] = static_cast<float>(sum);
      if (d[i] != sum) __trap();
    }
  });
}

#endif

}  // namespace zinc::simt
