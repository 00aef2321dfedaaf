// Steps without barriers, on devices that start the workgroups of consecutive dispatches in order (kCounterSync). A barrier
// drains the device; here each workgroup increments the counter of its dispatch batch when it has finished, and workgroups of
// the next batch poll that counter. Their parameters, instructions and first weights are loaded by then. Counters are never
// reset: the expected value is n_producers times the step number. Data written by another dispatch of the same step is read
// through Coherent* references, never from a workgroup-local cache.
layout(constant_id = kSpecCounterSync) const int kCounterSync = kNoCounters;
// Warm-up pass: the kernel first runs on whatever is in memory and writes nothing, so that instructions and parameters are in
// cache when the wait ends. Only for dispatches whose workgroups all start early enough.
layout(constant_id = kSpecWarmUp) const int kWarmUp = 0;

// REQUIRES for both functions: every thread of the workgroup calls.
void wait_producers(CounterSync sync) {
  if (kCounterSync != kWaitsAndSignals) return;
  if (thread_id() == 0 && sync.n_producers > 0) {
    uint expected = uint(sync.n_producers) * uint(step_count(kStepNumber));
    while (int(Counter(sync.producer_counter).count - expected) < 0) {
    }
    groupMemoryBarrier();  // ordering suffices: Coherent* loads see the data published by the producers' fence
  }
  barrier();
}

void signal_done(CounterSync sync) {
  if (kCounterSync == kNoCounters) return;
  memoryBarrierBuffer();
  barrier();
  if (thread_id() == 0) atomicAdd(Counter(sync.own_counter).count, 1u);
}
