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

uint wanted_count(Chain chain) { return uint(chain.n_before) * uint(step_count(kStepNumber)); }
bool is_counted(Chain chain, uint wanted) { return int(Counter(chain.before).count - wanted) >= 0; }

// Whether there is nothing to wait for any more, and so no time for anything else. REQUIRES: every thread of the workgroup calls,
// as of the next.
shared uint is_late;
bool starts_late(Chain chain) {
  if (kChained == 0) return true;
  if (thread_id() == 0) is_late = chain.n_before == 0 || is_counted(chain, wanted_count(chain)) ? 1u : 0u;
  barrier();
  return is_late != 0u;
}

void wait_for_group(Chain chain) {
  if (kChained == 0) return;
  if (thread_id() == 0 && chain.n_before > 0) {
    uint wanted = wanted_count(chain);
    while (!is_counted(chain, wanted)) {
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
