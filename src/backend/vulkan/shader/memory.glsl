// Memory as kernels see it: addresses of 64 bits, given by the host, read as arrays. What a kernel is given lies in one
// uniform block (`p`, at an offset of the host's choosing); where the step's inputs lie in another (`step`).
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_scalar_block_layout : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#extension GL_EXT_control_flow_attributes : require

layout(local_size_x = 256) in;

const int kThreads = 256;
const int kWarps = 8;  // a warp is 32 neighbouring threads, whatever the device's subgroups are
const int kPanelRows = 32;
const int kSegmentElems = 256;
const int kGroupElems = 32;
const int kSegmentGroups = 8;
const int kPagePositions = 32;
const int kChunkPositions = 256;

layout(buffer_reference, scalar, buffer_reference_align = 4) buffer Floats { float at[]; };
layout(buffer_reference, scalar, buffer_reference_align = 4) buffer Ints { int at[]; };
layout(buffer_reference, scalar, buffer_reference_align = 4) buffer Words { uint at[]; };
layout(buffer_reference, scalar, buffer_reference_align = 8) buffer Pairs { uvec2 at[]; };
layout(buffer_reference, scalar, buffer_reference_align = 8) buffer FloatPairs { vec2 at[]; };
layout(buffer_reference, scalar, buffer_reference_align = 16) buffer Quads { uvec4 at[]; };
layout(buffer_reference, scalar, buffer_reference_align = 16) buffer FloatQuads { vec4 at[]; };
layout(buffer_reference, scalar, buffer_reference_align = 4) coherent volatile buffer Counter { uint count; };
layout(buffer_reference, scalar, buffer_reference_align = 4) coherent buffer PassedFloats { float at[]; };
layout(buffer_reference, scalar, buffer_reference_align = 4) coherent buffer PassedInts { int at[]; };
layout(buffer_reference, scalar, buffer_reference_align = 8) coherent buffer PassedPairs { vec2 at[]; };
layout(buffer_reference, scalar, buffer_reference_align = 16) coherent buffer PassedQuads { vec4 at[]; };

// Where the counts of a step lie in its upload.
const int kTokens = 0;
const int kSeqs = 1;
const int kOutputs = 2;
const int kLogitRows = 3;
const int kStride = 4;   // per page group: entries of a row of its table
const int kEntries = 8;  // likewise: where its table begins
const int kStepNumber = 12;  // how often the recorded steps of this size ran, with this one

struct Step {
  uint64_t counts, tokens, positions, seq_of_token, seq_begin, slots, output_rows, logit_rows, first_column;
  uint64_t hidden_in;                        // [T, dim] from the host
  uint64_t last_sampled;                     // [slots]
  uint64_t sampled, logits_out, hidden_out;  // where the host reads
  int max_seqs, unused;
};
layout(set = 0, binding = 1, scalar) uniform StepBlock { Step step; };

int step_count(int which) { return Ints(step.counts).at[which]; }
const int kAlwaysOne = -1;
int rows_of(int which) { return which == kAlwaysOne ? 1 : step_count(which); }

// Of a grid of single threads; long ones are folded into rows.
int flat_id() { return int((gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x) * uint(kThreads) + gl_LocalInvocationIndex); }
int thread_id() { return int(gl_LocalInvocationIndex); }
int lane_id() { return int(gl_LocalInvocationIndex) & 31; }
int warp_id() { return int(gl_LocalInvocationIndex) >> 5; }
int padded(int n) { return (n + 31) / 32 * 32; }
