// What a step of one token has in place of barriers, on devices that start the workgroups of dispatches in their order
// (kChained): a workgroup counts itself when it is done, and those behind wait until all of the group of dispatches before
// them are counted. Parameters, instructions and the first weights are there by then. Counters only grow: they are compared
// with what they come to in the step of this number. Whatever another dispatch of the step wrote is read as Passed*, never
// from a cache of the workgroup's own.
layout(constant_id = 19) const int kChained = 0;
// Workgroups that will wait run first with whatever lies there and write nothing: instructions and parameters are near when it
// counts. For dispatches whose workgroups all start early enough.
layout(constant_id = 23) const int kRehearses = 0;

struct Chain {
  uint64_t before, own;  // counters: of the group before, of this one
  int n_before;          // workgroups the group before counts in a step; 0: a barrier stands there
  int unused;
};

// REQUIRES: every thread of the workgroup calls, as of the next.
void wait_for_group(Chain chain) {
  if (kChained == 0) return;
  if (thread_id() == 0 && chain.n_before > 0) {
    uint wanted = uint(chain.n_before) * uint(step_count(kStepNumber));
    while (int(Counter(chain.before).count - wanted) < 0) {
    }
    groupMemoryBarrier();  // the order is enough: Passed* are read where the others' fence has put them
  }
  barrier();
}

void count_workgroup(Chain chain) {
  if (kChained == 0) return;
  memoryBarrierBuffer();
  barrier();
  if (thread_id() == 0) atomicAdd(Counter(chain.own).count, 1u);
}
