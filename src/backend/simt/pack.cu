// Repacks weights from the file's quant blocks into panels, and dequantizes single rows (embeddings).
// A program of this file begins with one format/<f>.h and the panel sizes that the host uses.
#include "backend/simt/device_common.h"

namespace zinc::simt {

using F = WeightFormat;
static_assert(F::kHeaderBytes == kHostHeaderBytes && F::kGroupBytes == kHostGroupBytes);
static_assert(F::kQ8Block == kHostQ8Block);
constexpr int kRowSegmentBytes = F::kHeaderBytes + kSegmentGroups * F::kGroupBytes;

// One thread per row and segment. Rows past the last stay zero.
ZINC_KERNEL pack(PackParams p) {
  const long long index = static_cast<long long>(blockIdx.x) * kThreads + threadIdx.x;
  const int row = static_cast<int>(index % p.n_rows), segment = static_cast<int>(index / p.n_rows);
  if (segment >= p.n_segments) return;
  u8* to = p.to + row / kPanelRows * p.panel_bytes + static_cast<long long>(segment) * kPanelRows * kRowSegmentBytes;
  const int n_elems = min(kSegmentElems, p.n_in - segment * kSegmentElems);
  const u8* from = p.from + row * p.row_bytes + segment * (kSegmentElems / F::kBlockElems) * F::kBlockBytes;
  pack_segment<F>(from, n_elems, to, row % kPanelRows);
}

// One block per token, one thread per group of 32.
ZINC_KERNEL embed(EmbedParams p) {
  launch_dependents();
  wait_dependency();
  const int t = static_cast<int>(blockIdx.x);
  if (t >= p.step.counts[kTokens]) return;
  int token = p.step.tokens[t];
  if (token < 0) token = p.step.last_sampled[p.step.slots[p.step.seq_of_token[t]]];
  const u8* panel = p.table.bytes + token / kPanelRows * p.table.panel_bytes;
  const int n_groups = (p.table.n_in + kGroupElems - 1) / kGroupElems;
  for (int i = static_cast<int>(threadIdx.x); i < n_groups; i += kThreads) {
    const u8* segment = panel + static_cast<long long>(i / kSegmentGroups) * kPanelRows * kRowSegmentBytes;
    float values[kGroupElems];
    decode_group<F>(segment, token % kPanelRows, i % kSegmentGroups, values);
    const int n = min(kGroupElems, p.table.n_in - i * kGroupElems);
    for (int e = 0; e < n; ++e) p.out[static_cast<long long>(t) * p.table.n_in + i * kGroupElems + e] = values[e];
  }
}

}  // namespace zinc::simt
