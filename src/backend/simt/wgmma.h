// Hopper's wgmma: warpgroup MMA (four warps) with A in registers and B in shared memory. B tiles have rows of 128 bytes
// with the 128-byte swizzle: 16-byte pieces permuted within each 8 rows.
#pragma once

#include "backend/simt/device_common.h"

namespace zinc::simt {

using u64 = unsigned long long;

// Byte offset of 16-byte piece `piece` of row `row` in a swizzled tile.
ZINC_DEVICE int swizzled_offset(int row, int piece) { return row * 128 + ((piece ^ (row & 7)) << 4); }

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// Changes the registers per thread of the warpgroup: fewer, or more after other warpgroups released theirs.
template <int n>
ZINC_DEVICE void setmaxnreg_dec() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(n));
}
template <int n>
ZINC_DEVICE void setmaxnreg_inc() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(n));
}

// Makes stores to shared memory visible to wgmma (the async proxy).
ZINC_DEVICE void fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Matrix descriptor of a tile at `address`: 1024 bytes from eight rows to the next eight, 128-byte swizzle.
ZINC_DEVICE u64 wgmma_descriptor(u32 address) {
  return static_cast<u64>((address & 0x3FFFFu) >> 4) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}

// Orders register writes before the wgmma that reads them; commit ends a group; groups complete in order.
ZINC_DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
ZINC_DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits until at most n groups are pending.
template <int n>
ZINC_DEVICE void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(n) : "memory");
}
// Keeps reads of the accumulators behind the wait (CUTLASS's warpgroup_fence_operand).
template <int R>
ZINC_DEVICE void wgmma_fence_operand(int (&d)[R]) {
#pragma unroll
  for (int i = 0; i < R; ++i) asm volatile("" : "+r"(d[i])::"memory");
}
template <int R>
ZINC_DEVICE void wgmma_fence_operand(float (&d)[R]) {
#pragma unroll
  for (int i = 0; i < R; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

#define ZINC_D4(t, i) "+" t(d[i]), "+" t(d[i + 1]), "+" t(d[i + 2]), "+" t(d[i + 3])
#define ZINC_D16(t, i) ZINC_D4(t, i), ZINC_D4(t, i + 4), ZINC_D4(t, i + 8), ZINC_D4(t, i + 12)
#define ZINC_REGS_4 "%0,%1,%2,%3"
#define ZINC_REGS_8 "%0,%1,%2,%3,%4,%5,%6,%7"
#define ZINC_REGS_16 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define ZINC_REGS_32                                                                                           \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28," \
  "%29,%30,%31"
#define ZINC_REGS_48 ZINC_REGS_32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define ZINC_REGS_64 ZINC_REGS_48 ",%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"

// d (+)= a * b^T, 64 rows times N rows of 32 bytes. A lane's registers of a and d are those of mma.sync's m16n8k32 or
// m16n8k16, 16 rows per warp.
#define ZINC_WGMMA(SHAPE, NAMES, A, B, ADDS, MORE, ...)                                                              \
  asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, " ADDS ", 0;\nwgmma.mma_async.sync.aligned." SHAPE " {" NAMES \
               "}, {" A "}, " B ", adds" MORE ";\n}"                                                                 \
               : __VA_ARGS__                                                                                         \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(adds))
#define ZINC_A_4 "%4,%5,%6,%7", "%8", "%9"
#define ZINC_A_8 "%8,%9,%10,%11", "%12", "%13"
#define ZINC_A_16 "%16,%17,%18,%19", "%20", "%21"
#define ZINC_A_32 "%32,%33,%34,%35", "%36", "%37"
#define ZINC_A_48 "%48,%49,%50,%51", "%52", "%53"
#define ZINC_A_64 "%64,%65,%66,%67", "%68", "%69"
#define ZINC_WGMMA_EXPANDED(...) ZINC_WGMMA(__VA_ARGS__)

template <bool is_signed>
ZINC_DEVICE void wgmma_i8(int (&d)[4], const u32 (&a)[4], u64 b, int adds) {
  if constexpr (is_signed) {
    ZINC_WGMMA_EXPANDED("m64n8k32.s32.s8.s8", ZINC_REGS_4, ZINC_A_4, "", ZINC_D4("r", 0));
  } else {
    ZINC_WGMMA_EXPANDED("m64n8k32.s32.u8.s8", ZINC_REGS_4, ZINC_A_4, "", ZINC_D4("r", 0));
  }
}
template <bool is_signed>
ZINC_DEVICE void wgmma_i8(int (&d)[8], const u32 (&a)[4], u64 b, int adds) {
  if constexpr (is_signed) {
    ZINC_WGMMA_EXPANDED("m64n16k32.s32.s8.s8", ZINC_REGS_8, ZINC_A_8, "", ZINC_D4("r", 0), ZINC_D4("r", 4));
  } else {
    ZINC_WGMMA_EXPANDED("m64n16k32.s32.u8.s8", ZINC_REGS_8, ZINC_A_8, "", ZINC_D4("r", 0), ZINC_D4("r", 4));
  }
}
template <bool is_signed>
ZINC_DEVICE void wgmma_i8(int (&d)[16], const u32 (&a)[4], u64 b, int adds) {
  if constexpr (is_signed) {
    ZINC_WGMMA_EXPANDED("m64n32k32.s32.s8.s8", ZINC_REGS_16, ZINC_A_16, "", ZINC_D16("r", 0));
  } else {
    ZINC_WGMMA_EXPANDED("m64n32k32.s32.u8.s8", ZINC_REGS_16, ZINC_A_16, "", ZINC_D16("r", 0));
  }
}
template <bool is_signed>
ZINC_DEVICE void wgmma_i8(int (&d)[32], const u32 (&a)[4], u64 b, int adds) {
  if constexpr (is_signed) {
    ZINC_WGMMA_EXPANDED("m64n64k32.s32.s8.s8", ZINC_REGS_32, ZINC_A_32, "", ZINC_D16("r", 0), ZINC_D16("r", 16));
  } else {
    ZINC_WGMMA_EXPANDED("m64n64k32.s32.u8.s8", ZINC_REGS_32, ZINC_A_32, "", ZINC_D16("r", 0), ZINC_D16("r", 16));
  }
}
template <bool is_signed>
ZINC_DEVICE void wgmma_i8(int (&d)[48], const u32 (&a)[4], u64 b, int adds) {
  if constexpr (is_signed) {
    ZINC_WGMMA_EXPANDED("m64n96k32.s32.s8.s8", ZINC_REGS_48, ZINC_A_48, "", ZINC_D16("r", 0), ZINC_D16("r", 16),
                        ZINC_D16("r", 32));
  } else {
    ZINC_WGMMA_EXPANDED("m64n96k32.s32.u8.s8", ZINC_REGS_48, ZINC_A_48, "", ZINC_D16("r", 0), ZINC_D16("r", 16),
                        ZINC_D16("r", 32));
  }
}
template <bool is_signed>
ZINC_DEVICE void wgmma_i8(int (&d)[64], const u32 (&a)[4], u64 b, int adds) {
  if constexpr (is_signed) {
    ZINC_WGMMA_EXPANDED("m64n128k32.s32.s8.s8", ZINC_REGS_64, ZINC_A_64, "", ZINC_D16("r", 0), ZINC_D16("r", 16),
                        ZINC_D16("r", 32), ZINC_D16("r", 48));
  } else {
    ZINC_WGMMA_EXPANDED("m64n128k32.s32.u8.s8", ZINC_REGS_64, ZINC_A_64, "", ZINC_D16("r", 0), ZINC_D16("r", 16),
                        ZINC_D16("r", 32), ZINC_D16("r", 48));
  }
}
// The same for 16 bf16 values, accumulated in float32.
ZINC_DEVICE void wgmma_bf16(float (&d)[32], const u32 (&a)[4], u64 b, int adds) {
  ZINC_WGMMA_EXPANDED("m64n64k16.f32.bf16.bf16", ZINC_REGS_32, ZINC_A_32, ", 1, 1, 0", ZINC_D16("f", 0),
                      ZINC_D16("f", 16));
}

#endif

}  // namespace zinc::simt
