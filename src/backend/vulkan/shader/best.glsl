// The larger value, the lower place among equals, over the workgroup's threads: by shuffles within a subgroup, then
// among the subgroups' winners.
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require

const int kNowhere = 0x7FFFFFFF;

shared float best_values[kThreads / 4];
shared int best_places[kThreads / 4];

void keep_better(inout float value, inout int place, float other, int other_place) {
  if (other_place == kNowhere) return;
  if (place != kNowhere && (value > other || (value == other && place < other_place))) return;
  if (place != kNowhere && !(other > value) && other != value) return;  // not a number
  value = other;
  place = other_place;
}

void block_best(inout float value, inout int place) {
  for (uint step = gl_SubgroupSize / 2; step > 0; step /= 2) {
    float other = subgroupShuffleXor(value, step);
    int other_place = subgroupShuffleXor(place, step);
    keep_better(value, place, other, other_place);
  }
  if (gl_SubgroupInvocationID == 0) {
    best_values[gl_SubgroupID] = value;
    best_places[gl_SubgroupID] = place;
  }
  barrier();
  for (int i = 0; i < int(gl_NumSubgroups); ++i) keep_better(value, place, best_values[i], best_places[i]);
  barrier();
}
