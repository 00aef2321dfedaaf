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
// Bytes that copies will report to the barrier's present phase.
ZINC_DEVICE void barrier_expect(u64* barrier, int n_bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(n_bytes)
               : "memory");
#endif
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

// How many registers each thread of the four warps has from here on: fewer, or more once others gave theirs up.
template <int n>
ZINC_DEVICE void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(n));
}
template <int n>
ZINC_DEVICE void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(n));
}

// What was stored to shared memory is there for the matrix instructions.
ZINC_DEVICE void show_to_matrix_cores() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// A tile of 128-byte rows, from `address` on: 1024 bytes from eight rows to the next eight, permuted by 128 bytes.
ZINC_DEVICE u64 tile_descriptor(u32 address) {
  return static_cast<u64>((address & 0x3FFFFu) >> 4) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}

// Products are begun in sets, after whatever their registers hold was written there, and end in order.
ZINC_DEVICE void products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
ZINC_DEVICE void products_end() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// All sets but the last n have ended.
template <int n>
ZINC_DEVICE void await_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(n) : "memory");
}
// Their results are read only from here on.
template <int R>
ZINC_DEVICE void take_results(int (&d)[R]) {
#pragma unroll
  for (int i = 0; i < R; ++i) asm volatile("" : "+r"(d[i])::"memory");
}
template <int R>
ZINC_DEVICE void take_results(float (&d)[R]) {
#pragma unroll
  for (int i = 0; i < R; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

#define ZINC_D4(t, i) "+" t(d[i]), "+" t(d[i + 1]), "+" t(d[i + 2]), "+" t(d[i + 3])
#define ZINC_D16(t, i) ZINC_D4(t, i), ZINC_D4(t, i + 4), ZINC_D4(t, i + 8), ZINC_D4(t, i + 12)
#define ZINC_NAMES_32                                                                                          \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28," \
  "%29,%30,%31"
#define ZINC_NAMES_48 ZINC_NAMES_32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define ZINC_NAMES_64 ZINC_NAMES_48 ",%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"

// d (+)= a * b^T, 64 rows times N rows of 32 bytes; a in registers: of a lane the words that mma.sync's m16n8k32 or
// m16n8k16 wants, 16 rows a warp; d as these give it.
#define ZINC_PRODUCT(SHAPE, NAMES, A, B, ADDS, MORE, ...)                                                            \
  asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, " ADDS ", 0;\nwgmma.mma_async.sync.aligned." SHAPE " {" NAMES \
               "}, {" A "}, " B ", adds" MORE ";\n}"                                                                 \
               : __VA_ARGS__                                                                                         \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(adds))
#define ZINC_A_32 "%32,%33,%34,%35", "%36", "%37"
#define ZINC_A_48 "%48,%49,%50,%51", "%52", "%53"
#define ZINC_A_64 "%64,%65,%66,%67", "%68", "%69"
#define ZINC_EXPANDED(...) ZINC_PRODUCT(__VA_ARGS__)

template <bool is_signed>
ZINC_DEVICE void multiply_bytes(int (&d)[32], const u32 (&a)[4], u64 b, int adds) {
  if constexpr (is_signed) {
    ZINC_EXPANDED("m64n64k32.s32.s8.s8", ZINC_NAMES_32, ZINC_A_32, "", ZINC_D16("r", 0), ZINC_D16("r", 16));
  } else {
    ZINC_EXPANDED("m64n64k32.s32.u8.s8", ZINC_NAMES_32, ZINC_A_32, "", ZINC_D16("r", 0), ZINC_D16("r", 16));
  }
}
template <bool is_signed>
ZINC_DEVICE void multiply_bytes(int (&d)[48], const u32 (&a)[4], u64 b, int adds) {
  if constexpr (is_signed) {
    ZINC_EXPANDED("m64n96k32.s32.s8.s8", ZINC_NAMES_48, ZINC_A_48, "", ZINC_D16("r", 0), ZINC_D16("r", 16),
                  ZINC_D16("r", 32));
  } else {
    ZINC_EXPANDED("m64n96k32.s32.u8.s8", ZINC_NAMES_48, ZINC_A_48, "", ZINC_D16("r", 0), ZINC_D16("r", 16),
                  ZINC_D16("r", 32));
  }
}
template <bool is_signed>
ZINC_DEVICE void multiply_bytes(int (&d)[64], const u32 (&a)[4], u64 b, int adds) {
  if constexpr (is_signed) {
    ZINC_EXPANDED("m64n128k32.s32.s8.s8", ZINC_NAMES_64, ZINC_A_64, "", ZINC_D16("r", 0), ZINC_D16("r", 16),
                  ZINC_D16("r", 32), ZINC_D16("r", 48));
  } else {
    ZINC_EXPANDED("m64n128k32.s32.u8.s8", ZINC_NAMES_64, ZINC_A_64, "", ZINC_D16("r", 0), ZINC_D16("r", 16),
                  ZINC_D16("r", 32), ZINC_D16("r", 48));
  }
}
// The same of 16 bf16 numbers, summed in floats.
ZINC_DEVICE void multiply_halves(float (&d)[32], const u32 (&a)[4], u64 b, int adds) {
  ZINC_EXPANDED("m64n64k16.f32.bf16.bf16", ZINC_NAMES_32, ZINC_A_32, ", 1, 1, 0", ZINC_D16("f", 0), ZINC_D16("f", 16));
}

#endif

}  // namespace zinc::simt
