// Embedding lookup: dequantizes rows of the table, one module per format. One workgroup per token, one thread per quant group.
#version 460
#include "memory.glsl"
#include "panel.glsl"
#include FORMAT

layout(set = 0, binding = 0, scalar) uniform Block { EmbedParams p; };

const int kSegmentBytes = kPanelRows * (HEADER_BYTES + kSegmentGroups * GROUP_BYTES);

#if Q8_BLOCK > 0
float dequantize(uint64_t segment, int row, int g, int e, int w[8]) {
  Header header = load_header(segment, row);
  float q = float(signed_byte(uint(w[e / 4]), e & 3));
#if Q8_BLOCK == 32
  float value = header_scale(header, g) * q;
#if HAS_MIN
  value += header_min(header, g);
#endif
#elif HALF_GROUP_SCALES
  float value = header_d(header) * float(header_scale(header, 2 * g + e / 16)) * q;
#else
  float value = header_d(header) * float(header_scale(header, g)) * q;
#if HAS_MIN
  value -= header_dmin(header) * float(header_min(header, g));
#endif
#endif
  return value;
}
#endif

void main() {
  int t = int(gl_WorkGroupID.x);
  if (t >= step_count(kTokens)) return;
  int token = Ints(step.tokens).data[t];
  if (token < 0) token = Ints(step.last_sampled).data[Ints(step.slots).data[Ints(step.seq_of_token).data[t]]];
  uint64_t panel = p.table.bytes + uint64_t(token / kPanelRows) * p.table.panel_bytes;
  int row = token % kPanelRows, n_in = p.table.n_in;
  for (int i = thread_id(); i < (n_in + kGroupElems - 1) / kGroupElems; i += kThreads) {
    uint64_t segment = panel + uint64_t(i / kSegmentGroups) * uint64_t(kSegmentBytes);
    int g = i % kSegmentGroups;
#if Q8_BLOCK > 0
    int w[8];
    unpack(load_group(segment, row, g), w);
#endif
    for (int e = 0; e < kGroupElems; ++e) {
      if (i * kGroupElems + e >= n_in) break;
#if Q8_BLOCK > 0
      float value = dequantize(segment, row, g, e, w);
#else
      float value = element(load_16(segment, g * GROUP_BYTES + e / PIECE_ELEMS * 16, row), e % PIECE_ELEMS);
#endif
      Floats(p.out_ + uint64_t(t) * uint64_t(n_in) * 4ul).data[i * kGroupElems + e] = value;
    }
  }
}
