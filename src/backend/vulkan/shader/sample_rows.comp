// Sampling, second pass, one workgroup per row: the best token, or a random one after top-k, top-p and min-p, which is the token
// that the host's Sampler (sample/sampler.cc) returns. Each filter keeps the keys at or above a bound, found by radix select.
// Weights are fixed point, so that sums are exact in any order. Only chunks that can hold a kept token are read.
#version 460
#include "memory.glsl"
#include "sample.glsl"
#include "fixed_point.glsl"

const int kDigitBits = 8;       // of a key, per round of the radix select: a digit per thread
const float kNearLogits = 9.0;  // top-p nearly always keeps only tokens this close to the best
const int kLoadsInFlight = 8;   // per thread, while it sums weights

// Keys that find_bound() selects from. Their mass is 1, or the token's weight at temperature 1.
const int kChunkMaxima = 0, kTokenCounts = 1, kTokenWeights = 2;

shared uint mass_low[kThreads], mass_high[kThreads], key_counts[kThreads];  // per digit
shared uint64_t range_masses[kThreads], found_before;
shared int found, n_found;

// The row; the same in all threads. Every function below is called by all threads of the workgroup, except where it says so.
int row, n_candidates;  // n_candidates: chunks with a key of at least `bound`
float best_logit;
uint64_t bound;  // keys at or above it are kept

uint64_t chunks_of_row() { return p.chunks + uint64_t(row) * uint64_t(n_chunks()) * 4ul; }
uint chunk_best(int chunk) { return Words(p.chunk_best).data[row * n_chunks() + chunk]; }

int n_candidate_logits() { return n_candidates * kSampleChunk; }

// By any thread: the key of logit i of the candidates' chunks if it is kept, else 0. Loads do not depend on branches.
uint64_t kept_key(int i) {
  int id = CoherentInts(chunks_of_row()).data[i / kSampleChunk] * kSampleChunk + i % kSampleChunk;
  uint64_t key = sort_key(logit_key(Words(logits_of(row)).data[min(id, p.vocab - 1)]), id);
  return id < p.vocab && key >= bound ? key : 0ul;
}
// By any thread. +infinity counts as the largest float.
float logit_of(uint64_t sort_key) {
  uint key = min(key_of(sort_key), kHighestKey);
  return uintBitsToFloat((key & 0x80000000u) != 0u ? key & 0x7FFFFFFFu : ~key);
}
// By any thread.
uint64_t weight_of(uint64_t key, float inv_temperature) {
  return fixed_point_weight(logit_of(key), best_logit, inv_temperature);
}
// By any thread: of the kept ones of the candidates' logits begin, begin + stride, ..., before end.
uint64_t sum_weights(int begin, int end, int stride, float inv_temperature) {
  uint64_t mass = 0ul;
  for (int first = begin; first < end; first += kLoadsInFlight * stride) {
    uint64_t keys[kLoadsInFlight];
    [[unroll]] for (int k = 0; k < kLoadsInFlight; ++k) keys[k] = kept_key(min(first + k * stride, end - 1));
    [[unroll]] for (int k = 0; k < kLoadsInFlight; ++k) {
      if (first + k * stride < end && keys[k] != 0ul) mass += weight_of(keys[k], inv_temperature);
    }
  }
  return mass;
}

// Sum over the threads before this one, and over all.
uint64_t workgroup_prefix_sum(uint64_t x, out uint64_t total) {
  uint64_t before = 0ul, sum = x;
  for (int step = 1; step < kSubgroup; step *= 2) {
    uint64_t other = shuffle_xor(sum, step);
    if ((thread_id() & step) != 0) before += other;
    sum += other;
  }
  if (thread_id() % kSubgroup == 0) subgroup_results[thread_id() / kSubgroup] = sum;
  barrier();
  total = 0ul;
  for (int s = 0; s < kThreads / kSubgroup; ++s) {
    if (s == thread_id() / kSubgroup) before += total;
    total += subgroup_results[s];
  }
  barrier();
  return before;
}

void find_candidates() {
  int per_thread = (n_chunks() + kThreads - 1) / kThreads;
  int begin = min(thread_id() * per_thread, n_chunks()), end = min(begin + per_thread, n_chunks()), n = 0;
  for (int c = begin; c < end; ++c) n += chunk_best(c) >= key_of(bound) ? 1 : 0;
  uint64_t total;
  int index = int(workgroup_prefix_sum(uint64_t(n), total));
  for (int c = begin; c < end; ++c) {
    if (chunk_best(c) >= key_of(bound)) CoherentInts(chunks_of_row()).data[index++] = c;
  }
  n_candidates = int(total);
  memoryBarrierBuffer();
  barrier();
}

uint64_t remaining_mass() {
  uint64_t total;
  workgroup_prefix_sum(sum_weights(thread_id(), n_candidate_logits(), kThreads, 1.0), total);
  return total;
}

// By any thread. A 64-bit sum from 32-bit atomics: the thread whose addition overflows the low word adds the carry.
void add_mass(int digit, uint64_t mass) {
  uint low = unpackUint2x32(mass).x, high = unpackUint2x32(mass).y;
  uint before = atomicAdd(mass_low[digit], low);
  if (before + low < before) high += 1u;
  if (high != 0u) atomicAdd(mass_high[digit], high);
}

// Radix select: the highest bound at which the mass of the keys at or above it reaches `target`; 0 if all have less.
uint64_t find_bound(int keys, uint64_t target) {
  uint64_t digits = 0ul, before = 0ul;  // of the bound so far; mass of the keys above them
  for (int shift = 64 - kDigitBits; shift >= 0; shift -= kDigitBits) {
    mass_low[thread_id()] = mass_high[thread_id()] = key_counts[thread_id()] = 0u;
    barrier();
    for (int i = thread_id(); i < (keys == kChunkMaxima ? n_chunks() : n_candidate_logits()); i += kThreads) {
      uint64_t key = keys == kChunkMaxima ? sort_key(chunk_best(i), i) : kept_key(i);
      bool has_prefix = (key ^ digits) >> shift >> kDigitBits == 0ul;
      if (key == 0ul || !has_prefix) continue;
      int digit = int(key >> shift) & (kThreads - 1);
      atomicAdd(key_counts[digit], 1u);
      if (keys == kTokenWeights) add_mass(digit, weight_of(key, 1.0));
    }
    barrier();
    int digit = kThreads - 1 - thread_id();
    uint64_t mass = uint64_t(key_counts[digit]), total;
    if (keys == kTokenWeights) mass = packUint2x32(uvec2(mass_low[digit], mass_high[digit]));
    uint64_t above = before + workgroup_prefix_sum(mass, total);
    if (above < target && above + mass >= target) {
      found = digit;
      found_before = above;
      n_found = int(key_counts[digit]);
    }
    barrier();
    if (before + total < target) return 0ul;
    digits |= uint64_t(found) << shift;
    before = found_before;
    if (n_found == 1) break;  // its lower digits do not matter: it is the last kept key
  }
  return digits;
}

uint64_t ceil_of(RoundedProduct product) { return product.whole + (product.has_fraction ? 1ul : 0ul); }

void keep_top_p(uint top_p, bool is_cut) {
  uint64_t target = max(ceil_of(times_float(remaining_mass(), top_p)), 1ul), kept_bound = bound;
  if (!is_cut) {
    precise float near = best_logit - kNearLogits;
    bound = max(bound, uint64_t(logit_key(floatBitsToUint(near))) << 32);
    find_candidates();
    if (remaining_mass() < target) {
      bound = kept_bound;
      find_candidates();
    }
  }
  bound = max(kept_bound, find_bound(kTokenWeights, target));
}

// The mass of each range of the candidates' logits. The sums of the halves of a warp's masses fit 32 bits.
void sum_ranges(int n_ranges, int range_logits, float inv_temperature) {
  for (int first = 0; first < n_ranges; first += kWarps) {
    int range = first + warp_id(), begin = range * range_logits, end = min(begin + range_logits, n_candidate_logits());
    uint64_t mass = sum_weights(begin + lane_id(), end, 32, inv_temperature);
    int low = clustered_sum_int(int(uint(mass) & 0xFFFFu), 32), high = clustered_sum_int(int(mass >> 16), 32);
    if (range < n_ranges && lane_id() == 0) range_masses[range] = (uint64_t(high) << 16) + uint64_t(low);
  }
  barrier();
}

// The token at which the cumulative mass of the kept tokens passes `uniform` of the total: first its range, one per thread.
int token_at(float inv_temperature, uint uniform_high, uint uniform_low) {
  int range_logits = (n_candidates + kThreads - 1) / kThreads * kSampleChunk;
  int n_ranges = (n_candidate_logits() + range_logits - 1) / range_logits;
  sum_ranges(n_ranges, range_logits, inv_temperature);
  uint64_t own = thread_id() < n_ranges ? range_masses[thread_id()] : 0ul, total;
  uint64_t before = workgroup_prefix_sum(own, total);
  uint64_t target = min(times_double(total, uniform_high, uniform_low).whole, total - 1ul);
  if (before <= target && target < before + own) {
    found = thread_id();
    found_before = before;
  }
  barrier();
  int begin = found * range_logits, end = min(begin + range_logits, n_candidate_logits());
  uint64_t passed = found_before;
  for (int first = begin; first < end; first += kThreads) {
    uint64_t key = kept_key(min(first + thread_id(), end - 1));
    own = first + thread_id() < end && key != 0ul ? weight_of(key, inv_temperature) : 0ul;
    before = passed + workgroup_prefix_sum(own, total);
    if (before <= target && target < before + own) found = id_of(key);
    passed += total;
  }
  barrier();
  return found;
}

// The same filters as the host's, in the same order.
int sample_token() {
  float inv_temperature = intBitsToFloat(sampling_field(row, kInvTemperature));
  uint top_p = uint(sampling_field(row, kTopP));
  int top_k = sampling_field(row, kTopK);
  bool cuts_k = top_k > 0 && top_k < p.vocab, cuts_p = top_p < floatBitsToUint(1.0);
  bound = uint64_t(kLowestKey) << 32;
  if (cuts_k) {  // first a value that at least k logits reach, since the maxima of k chunks do
    uint64_t chunk_bound = find_bound(kChunkMaxima, uint64_t(top_k));
    bound = max(bound, uint64_t(key_of(chunk_bound)) << 32);
  }
  if (cuts_k || cuts_p) find_candidates();
  if (cuts_k) bound = max(bound, find_bound(kTokenCounts, uint64_t(top_k)));
  if (cuts_p) keep_top_p(top_p, cuts_k);
  precise float min_p_logit = best_logit + intBitsToFloat(sampling_field(row, kLogMinP));
  bound = max(bound, uint64_t(logit_key(floatBitsToUint(min_p_logit))) << 32);
  find_candidates();
  return token_at(inv_temperature, uint(sampling_field(row, kUniformHigh)), uint(sampling_field(row, kUniformLow)));
}

// The last row of a sequence stores its token in the sequence's slot. If no logit can be sampled, the host gets -1 and the slot
// token 0.
void main() {
  row = int(gl_WorkGroupID.y);
  int n_rows = step_count(kOutputs), part = row * kSampleSplits + thread_id();
  if (row >= n_rows) return;
  uint64_t best = thread_id() < kSampleSplits ? sort_key(Words(p.best).data[part], Ints(p.best_id).data[part]) : 0ul;
  best = workgroup_max(best);
  int token = key_of(best) >= kLowestKey ? id_of(best) : -1;
  if (token >= 0 && is_sampled(row)) {
    best_logit = logit_of(best);
    token = sample_token();
  }
  if (thread_id() != 0) return;
  Ints(step.sampled).data[row] = token;
  int seq = Ints(step.seq_of_token).data[Ints(step.output_rows).data[row]];
  if (row + 1 == n_rows || Ints(step.seq_of_token).data[Ints(step.output_rows).data[row + 1]] != seq) {
    Ints(step.last_sampled).data[Ints(step.slots).data[seq]] = max(token, 0);
  }
}
