// Argmax over the workgroup's threads; the lowest index wins ties. Shuffles within a subgroup, then a scan of the
// subgroups' winners.
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require

const int kNoIndex = 0x7FFFFFFF;

shared float best_values[kThreads / 4];
shared int best_indices[kThreads / 4];

void argmax_update(inout float value, inout int index, float other, int other_index) {
  if (other_index == kNoIndex) return;
  if (index != kNoIndex && (value > other || (value == other && index < other_index))) return;
  if (index != kNoIndex && !(other > value) && other != value) return;  // NaN
  value = other;
  index = other_index;
}

void workgroup_argmax(inout float value, inout int index) {
  for (uint step = gl_SubgroupSize / 2; step > 0; step /= 2) {
    float other = subgroupShuffleXor(value, step);
    int other_index = subgroupShuffleXor(index, step);
    argmax_update(value, index, other, other_index);
  }
  if (gl_SubgroupInvocationID == 0) {
    best_values[gl_SubgroupID] = value;
    best_indices[gl_SubgroupID] = index;
  }
  barrier();
  for (int i = 0; i < int(gl_NumSubgroups); ++i) argmax_update(value, index, best_values[i], best_indices[i]);
  barrier();
}
