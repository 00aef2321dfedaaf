// Hopper's own instructions: matrix products of a group of four warps with both operands in shared memory, and barriers
// that count arrivals. Operands are tiles of rows of 128 bytes, their 16-byte pieces permuted within each 8 rows.
#pragma once

#include "backend/simt/dialect.h"

namespace zinc::simt {

using u64 = unsigned long long;

// Where piece `piece` (16 bytes) of row `row` lies in a tile.
ZINC_DEVICE int tile_offset(int row, int piece) { return row * 128 + ((piece ^ (row & 7)) << 4); }

ZINC_DEVICE void barrier_init(u64* barrier, int n_arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(n_arrivals));
}
ZINC_DEVICE void barrier_arrive(u64* barrier) {
  asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}
ZINC_DEVICE void barrier_wait(u64* barrier, int parity) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "{\n.reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared.b64 done, [%0], %1;\n"
      "@done bra over;\n"
      "bra again;\n"
      "over:\n}" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
#endif
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// What was stored to shared memory is there for the matrix instructions.
ZINC_DEVICE void show_to_matrix_cores() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// A tile of 128-byte rows, from `address` on: 1024 bytes from eight rows to the next eight, permuted by 128 bytes.
ZINC_DEVICE u64 tile_descriptor(u32 address) {
  return static_cast<u64>((address & 0x3FFFFu) >> 4) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}

ZINC_DEVICE void products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
ZINC_DEVICE void products_end() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}

#define ZINC_D4(i) "+r"(d[i]), "+r"(d[i + 1]), "+r"(d[i + 2]), "+r"(d[i + 3])
#define ZINC_D16(i) ZINC_D4(i), ZINC_D4(i + 4), ZINC_D4(i + 8), ZINC_D4(i + 12)
#define ZINC_NAMES_32                                                                                          \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28," \
  "%29,%30,%31"
#define ZINC_NAMES_48 ZINC_NAMES_32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define ZINC_NAMES_64 ZINC_NAMES_48 ",%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"

// d (+)= a * b^T, 64 rows times N rows of 32 bytes. Of d a lane has, for each 8 columns, those of quad rows / 4 and
// that plus 8: as mma.sync's m16n8 gives them, 16 rows a warp.
#define ZINC_BYTE_PRODUCT(N, TYPES, NAMES, A, B, ADDS, ...)                                                \
  asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, " ADDS ", 0;\nwgmma.mma_async.sync.aligned.m64n" #N \
               "k32.s32." TYPES " {" NAMES "}, " A ", " B ", adds;\n}"                                     \
               : __VA_ARGS__                                                                               \
               : "l"(a), "l"(b), "r"(adds))

template <bool is_signed>
ZINC_DEVICE void multiply_bytes(int (&d)[32], u64 a, u64 b, int adds) {
  if constexpr (is_signed) {
    ZINC_BYTE_PRODUCT(64, "s8.s8", ZINC_NAMES_32, "%32", "%33", "%34", ZINC_D16(0), ZINC_D16(16));
  } else {
    ZINC_BYTE_PRODUCT(64, "u8.s8", ZINC_NAMES_32, "%32", "%33", "%34", ZINC_D16(0), ZINC_D16(16));
  }
}
template <bool is_signed>
ZINC_DEVICE void multiply_bytes(int (&d)[48], u64 a, u64 b, int adds) {
  if constexpr (is_signed) {
    ZINC_BYTE_PRODUCT(96, "s8.s8", ZINC_NAMES_48, "%48", "%49", "%50", ZINC_D16(0), ZINC_D16(16), ZINC_D16(32));
  } else {
    ZINC_BYTE_PRODUCT(96, "u8.s8", ZINC_NAMES_48, "%48", "%49", "%50", ZINC_D16(0), ZINC_D16(16), ZINC_D16(32));
  }
}
template <bool is_signed>
ZINC_DEVICE void multiply_bytes(int (&d)[64], u64 a, u64 b, int adds) {
  if constexpr (is_signed) {
    ZINC_BYTE_PRODUCT(128, "s8.s8", ZINC_NAMES_64, "%64", "%65", "%66", ZINC_D16(0), ZINC_D16(16), ZINC_D16(32),
                      ZINC_D16(48));
  } else {
    ZINC_BYTE_PRODUCT(128, "u8.s8", ZINC_NAMES_64, "%64", "%65", "%66", ZINC_D16(0), ZINC_D16(16), ZINC_D16(32),
                      ZINC_D16(48));
  }
}

#endif

}  // namespace zinc::simt
