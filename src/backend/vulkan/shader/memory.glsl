// Buffer references (64-bit addresses from the host) read as arrays. A kernel's parameters are in one uniform block (`p`, with a
// dynamic offset), the addresses of the step's inputs in another (`step`). Coherent* bypass the non-coherent caches.
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_scalar_block_layout : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#extension GL_EXT_control_flow_attributes : require

layout(local_size_x = 256) in;

const int kThreads = 256;
const int kWarps = 8;  // a warp is 32 consecutive threads, whatever the device's subgroup size
const int kPanelRows = 32;
const int kSegmentElems = 256;
const int kGroupElems = 32;
const int kSegmentGroups = 8;
const int kPageTokens = 32;
const int kChunkPositions = 256;

layout(buffer_reference, scalar, buffer_reference_align = 4) buffer Floats { float data[]; };
layout(buffer_reference, scalar, buffer_reference_align = 4) buffer Ints { int data[]; };
layout(buffer_reference, scalar, buffer_reference_align = 4) buffer Words { uint data[]; };
layout(buffer_reference, scalar, buffer_reference_align = 8) buffer Pairs { uvec2 data[]; };
layout(buffer_reference, scalar, buffer_reference_align = 8) buffer FloatPairs { vec2 data[]; };
layout(buffer_reference, scalar, buffer_reference_align = 16) buffer Quads { uvec4 data[]; };
layout(buffer_reference, scalar, buffer_reference_align = 16) buffer FloatQuads { vec4 data[]; };
layout(buffer_reference, scalar, buffer_reference_align = 4) coherent volatile buffer Counter { uint count; };
layout(buffer_reference, scalar, buffer_reference_align = 4) coherent buffer CoherentFloats { float data[]; };
layout(buffer_reference, scalar, buffer_reference_align = 4) coherent buffer CoherentInts { int data[]; };
layout(buffer_reference, scalar, buffer_reference_align = 16) coherent buffer CoherentQuads { vec4 data[]; };

// Indices of a step's counts in its upload (params.h). Index 3 differs from simt/params.h.
const int kTokens = 0;
const int kSeqs = 1;
const int kOutputs = 2;
const int kLogitRows = 3;
const int kPageTableStride = 4;  // per page group: row stride of its page table
const int kPageTableOffset = 8;  // per page group: offset of its page table
const int kStepNumber = 12;  // submissions of this recording, including the current one

struct Step {
  uint64_t counts, tokens, positions, seq_of_token, seq_begin, slots, output_rows, logit_rows, first_column;
  uint64_t hidden_in;                        // [T, dim] from the host
  uint64_t last_sampled;                     // [slots]
  uint64_t sampled, logits_out, hidden_out;  // read by the host
  int max_seqs, unused;
};
layout(set = 0, binding = 1, scalar) uniform StepBlock { Step step; };

int step_count(int count_idx) { return Ints(step.counts).data[count_idx]; }
const int kAlwaysOne = -1;
int rows_of(int count_idx) { return count_idx == kAlwaysOne ? 1 : step_count(count_idx); }

// Index in a 1D grid of threads; long grids are folded into rows.
int flat_id() { return int((gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x) * uint(kThreads) + gl_LocalInvocationIndex); }
int thread_id() { return int(gl_LocalInvocationIndex); }
int lane_id() { return int(gl_LocalInvocationIndex) & 31; }
int warp_id() { return int(gl_LocalInvocationIndex) >> 5; }
int padded(int n) { return (n + 31) / 32 * 32; }
