// What parameters of all families contain: the step's inputs and quantized activations. Kernel parameters are passed by
// value: plain structs shared by the host that launches and by the device code. Counts that change from step to step
// are pointers into the step's upload; everything else is fixed when a plan is compiled.
#pragma once

#include "backend/gpu/params/limits.h"

#ifdef __CUDACC__
#define ZINC_HOST_DEVICE __host__ __device__ constexpr
#else
#define ZINC_HOST_DEVICE constexpr
#endif

namespace zinc::simt {

using namespace kernel;
using kernel::kPageTokens;  // not the graph's

// The step's upload: counts, then arrays of the bucket's largest sizes, then the page tables.
struct Step {
  const int* counts;
  const int* tokens;        // [T], -1: the last token sampled by the sequence's slot
  const int* positions;     // [T]
  const int* seq_of_token;  // [T]
  const int* seq_begin;     // [S+1]
  const int* slots;         // [S]
  const int* row_slots;     // [T]: where the recurrent state after the row is written; negative: nowhere
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
  int stride;           // a multiple of kSegmentElems
  int is_in_mma_order;  // q is for gemm_small.cu: the words of a segment are in the order of mma_word()
  // For gemm_small_wgmma.cu; null: unused. An image of the shared memory of its tiles: [segment][2][image_rows][128]
  // bytes in swizzled pieces of 16; [segment][image_rows][16] sums of groups as f16 in two parts;
  // [segment][image_rows] scales.
  unsigned char* image = nullptr;
  int image_rows = 0;
};
inline constexpr int kImageSumBytes = 4 * kSegmentGroups;  // per row and segment
ZINC_HOST_DEVICE long long image_sums_at(int stride, int image_rows) {
  return static_cast<long long>(stride) * image_rows;
}
ZINC_HOST_DEVICE long long image_scales_at(int stride, int image_rows) {
  return image_sums_at(stride, image_rows) +
         static_cast<long long>(stride / kSegmentElems * kImageSumBytes) * image_rows;
}
ZINC_HOST_DEVICE long long image_bytes(int stride, int image_rows) {
  return image_scales_at(stride, image_rows) + static_cast<long long>(stride / kSegmentElems * 4) * image_rows;
}
// Index of word `word` (four int8) of quant group `group` in a segment in mma order: lane i of a quad reads its B
// fragments of mma.m16n8k32, words i and i + 4 of a group, as 16 bytes for two groups.
ZINC_HOST_DEVICE int mma_word(int group, int word) { return group / 2 * 16 + word % 4 * 4 + group % 2 * 2 + word / 4; }

ZINC_HOST_DEVICE int align_128(int n_bytes) { return (n_bytes + 127) / 128 * 128; }

}  // namespace zinc::simt
