// Buffer references (64-bit addresses from the host) read as arrays. A kernel's parameters are in one uniform block (`p`, with a
// dynamic offset), the addresses of the step's inputs in another (`step`). Coherent* bypass the non-coherent caches.
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_scalar_block_layout : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#extension GL_EXT_control_flow_attributes : require

#include "backend/gpu/params/limits.h"
#include "backend/vulkan/params/spec_constants.h"
#include "backend/vulkan/params/step.h"

layout(local_size_x = kThreads) in;

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
layout(buffer_reference, scalar, buffer_reference_align = 8) coherent buffer CoherentPairs { uvec2 data[]; };
layout(buffer_reference, scalar, buffer_reference_align = 16) coherent buffer CoherentQuads { vec4 data[]; };
layout(buffer_reference, scalar, buffer_reference_align = 16) coherent buffer CoherentWordQuads { uvec4 data[]; };

layout(set = 0, binding = 1, scalar) uniform StepBlock { StepParams step; };

int step_count(int count_idx) { return Ints(step.counts).data[count_idx]; }
int rows_of(int count_idx) { return count_idx == kAlwaysOne ? 1 : step_count(count_idx); }

// Index in a 1D grid of threads; long grids are folded into rows.
int flat_id() { return int((gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x) * uint(kThreads) + gl_LocalInvocationIndex); }
int thread_id() { return int(gl_LocalInvocationIndex); }
int lane_id() { return int(gl_LocalInvocationIndex) & 31; }
int warp_id() { return int(gl_LocalInvocationIndex) >> 5; }
int padded(int n) { return (n + 31) / 32 * 32; }
