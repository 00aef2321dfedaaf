// Sampling: greedy, or random after top-k, top-p and min-p.
//
// Tokens are ordered by a 64-bit key: higher logit first, then lower id. Each filter keeps the keys at or above a
// bound, found by radix select; weights are fixed point in units of 2^-32, so that sums are exact in any order and the
// token is the one that the host would sample. Two launches: sample_parts, 32 blocks per row, finds the best of each
// part and the maximum of each kSampleChunk logits; sample_rows, one block per row, reads only chunks that can hold a
// kept token.
#include "backend/simt/routing.h"

namespace zinc::simt {

using u64 = unsigned long long;

constexpr int kSampleWarps = kSampleThreads / 32;
constexpr int kDigitBits = 8, kDigits = 1 << kDigitBits;
constexpr float kMaxFloat = 3.402823466e38f;
constexpr float kNearLogits = 9.0f;  // top-p nearly always keeps only tokens this close to the best

ZINC_DEVICE int chunks_of(int vocab) { return (vocab + kSampleChunk - 1) / kSampleChunk; }

// Argmax of one part of a row of logits; NaN is never selected.
ZINC_KERNEL sample_parts(SampleParams p) {
  __shared__ float values[kWarps];
  __shared__ int indices[kWarps];
  launch_dependents();
  wait_dependency();
  const int row = static_cast<int>(blockIdx.y), part = static_cast<int>(blockIdx.x);
  if (row >= p.step.counts[kOutputs]) return;
  const int n_chunks = chunks_of(p.vocab), per_part = (n_chunks + kSampleSplits - 1) / kSampleSplits;
  const int begin = part * per_part, end = min(n_chunks, begin + per_part);
  const float* logits = p.logits + static_cast<long long>(row) * p.vocab;
  float best = neg_inf();
  int index = kNoIndex;
  if (row < p.step.counts[kSampledRows]) {
    for (int chunk = begin + warp_id(); chunk < end; chunk += kWarps) {
      float chunk_max = neg_inf();
      for (int i = chunk * kSampleChunk + lane_id(); i < min(p.vocab, (chunk + 1) * kSampleChunk); i += 32) {
        if (logits[i] > chunk_max) chunk_max = logits[i];
        if (logits[i] > best) {
          best = logits[i];
          index = i;
        }
      }
      chunk_max = warp_max(chunk_max, 32);
      if (lane_id() == 0) p.chunk_best[static_cast<long long>(row) * n_chunks + chunk] = chunk_max;
    }
  } else {
    const int end_logit = min(p.vocab, end * kSampleChunk);
    for (int i = begin * kSampleChunk + static_cast<int>(threadIdx.x); i < end_logit; i += kThreads) {
      if (logits[i] > best) {
        best = logits[i];
        index = i;
      }
    }
  }
  warp_argmax(best, index);
  if (lane_id() == 0) {
    values[warp_id()] = best;
    indices[warp_id()] = index;
  }
  __syncthreads();
  if (warp_id() > 0) return;
  best = lane_id() < kWarps ? values[lane_id()] : neg_inf();
  index = lane_id() < kWarps ? indices[lane_id()] : kNoIndex;
  warp_argmax(best, index);
  if (lane_id() == 0) {
    p.best[row * kSampleSplits + part] = best;
    p.best_id[row * kSampleSplits + part] = index;
  }
}

// e^d, the same operations as on the host (sample/softmax_exp.h), in units of 2^-32.
ZINC_DEVICE u64 fixed_point_weight(float logit, float best, float inv_temperature) {
  const float d = (kMaxFloat < logit ? kMaxFloat : logit) - best, distance = d * inv_temperature;
  constexpr float kMinDistance = -86.0f, kRound = 12582912.0f, kCoarse = 0.001953125f;
  if (!(distance > kMinDistance)) return 0;
  const float shifted = distance * 1.44269504f + kRound;
  const float n = shifted - kRound;
  const float r = (distance - n * 0.693145752f) - n * 1.42860677e-6f;
  float e = 1.0f / 720.0f;
  e = e * r + 1.0f / 120.0f;
  e = e * r + 1.0f / 24.0f;
  e = e * r + 1.0f / 6.0f;
  e = e * r + 0.5f;
  e = e * r + 1.0f;
  e = e * r + 1.0f;
  const float weight = __uint_as_float(__float_as_uint(e) + (__float_as_uint(shifted) << 23));
  const float rounded = weight < kCoarse ? (weight + kCoarse) - kCoarse : weight;
  return static_cast<u64>(rounded * 4294967296.0f);
}

// Larger for larger logits; both zeros are equal.
ZINC_DEVICE u32 sortable_bits(float logit) {
  const u32 bits = __float_as_uint(logit + 0.0f);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
ZINC_DEVICE u64 sort_key(float logit, int id) {
  return static_cast<u64>(sortable_bits(logit)) << 32 | ~static_cast<u32>(id);
}

ZINC_DEVICE u64 warp_sum(u64 x) {
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(0xFFFFFFFFu, x, step);
  return x;
}
// Inclusive prefix sum over lanes.
ZINC_DEVICE u64 warp_prefix_sum(u64 x) {
  for (int step = 1; step < 32; step *= 2) {
    const u64 before = __shfl_up_sync(0xFFFFFFFFu, x, step);
    if (lane_id() >= step) x += before;
  }
  return x;
}

// A row that a block samples from. Every method is called by all threads.
struct SampledRow {
  const float* logits;
  const float* chunk_best;
  int* chunks;  // candidates: chunks with a logit of at least `threshold`, ascending
  u64* masses;  // of the candidates
  int vocab, n_chunks, n_candidates;
  float best, threshold;
  u64 bound;  // keys at or above it are kept

  struct Shared {
    u64 mass[kDigits];
    u32 count[kDigits];
    u64 sums[kSampleWarps];
    u64 digits, before;  // of the bound so far; mass of the keys above them
    int n_in_digit, chunk;
  };
  Shared* shared;

  // Histogram of the keys with prefix `digits`, by their next digit.
  struct DigitHistogram {
    Shared* shared;
    u64 fixed, digits;  // mask of the prefix, and the prefix
    int shift;
    ZINC_DEVICE void add(u64 key, u64 mass) const {
      if ((key & fixed) != digits) return;
      const int digit = static_cast<int>(key >> shift) & (kDigits - 1);
      atomicAdd(&shared->mass[digit], mass);
      atomicAdd(&shared->count[digit], 1u);
    }
  };

  ZINC_DEVICE u64 block_total(u64 x) {
    x = warp_sum(x);
    if (lane_id() == 0) shared->sums[warp_id()] = x;
    __syncthreads();
    u64 sum = 0;
    for (int w = 0; w < kSampleWarps; ++w) sum += shared->sums[w];
    __syncthreads();
    return sum;
  }

  // Inclusive prefix sum over threads.
  ZINC_DEVICE u64 block_prefix(u64 x) {
    const u64 own = warp_prefix_sum(x);
    if (lane_id() == 31) shared->sums[warp_id()] = own;
    __syncthreads();
    u64 sum = own;
    for (int w = 0; w < warp_id(); ++w) sum += shared->sums[w];
    __syncthreads();
    return sum;
  }

  ZINC_DEVICE void find_candidates() {
    n_candidates = 0;
    for (int first = 0; first < n_chunks; first += kSampleThreads) {
      const int chunk = first + static_cast<int>(threadIdx.x);
      const u64 is_candidate = chunk < n_chunks && chunk_best[chunk] >= threshold ? 1 : 0;
      const u64 index = block_prefix(is_candidate);
      if (is_candidate) chunks[n_candidates + static_cast<int>(index) - 1] = chunk;
      n_candidates += static_cast<int>(block_total(is_candidate));
    }
  }

  // Calls visitor(logit, id) for each kept logit of the candidate chunks.
  template <class Visitor>
  ZINC_DEVICE void visit(Visitor visitor) {
    for (int i = warp_id(); i < n_candidates; i += kSampleWarps) visit_chunk(chunks[i], visitor);
  }
  template <class Visitor>
  ZINC_DEVICE void visit_chunk(int chunk, Visitor visitor) {
    for (int id = chunk * kSampleChunk + lane_id(); id < min(vocab, (chunk + 1) * kSampleChunk); id += 32) {
      const float logit = logits[id];
      if (logit >= threshold && sort_key(logit, id) >= bound) visitor(logit, id);
    }
  }

  ZINC_DEVICE u64 remaining_mass(float inv_temperature) {
    u64 mass = 0;
    visit([&](float logit, int) { mass += fixed_point_weight(logit, best, inv_temperature); });
    return block_total(mass);
  }

  // The next digit of the bound: the highest at which the mass of keys above and at it reaches `target`. False: none.
  ZINC_DEVICE bool find_digit(int shift, double target) {
    if (warp_id() == 0) {
      constexpr int kDigitsPerLane = kDigits / 32;
      const int highest = kDigits - 1 - lane_id() * kDigitsPerLane;
      u64 own = 0;
      for (int i = 0; i < kDigitsPerLane; ++i) own += shared->mass[highest - i];
      u64 sum = shared->before + warp_prefix_sum(own) - own;
      int found = -1;
      for (int i = 0; i < kDigitsPerLane && found < 0; ++i) {
        const int digit = highest - i;
        if (shared->count[digit] > 0 && static_cast<double>(sum + shared->mass[digit]) >= target) {
          found = digit;
        } else {
          sum += shared->mass[digit];
        }
      }
      const u32 found_lanes = __ballot_sync(0xFFFFFFFFu, found >= 0);
      __syncwarp();
      if (found_lanes == 0 && lane_id() == 0) shared->n_in_digit = 0;
      if (found_lanes != 0 && lane_id() == __ffs(static_cast<int>(found_lanes)) - 1) {
        shared->n_in_digit = static_cast<int>(shared->count[found]);
        shared->digits |= static_cast<u64>(found) << shift;
        shared->before = sum;
      }
    }
    __syncthreads();
    return shared->n_in_digit > 0;
  }

  // Radix select: the highest bound at which the mass of the keys at or above it reaches `target`; 0 if all have
  // less. add_keys(histogram) adds every key and its mass.
  template <class AddKeys>
  ZINC_DEVICE u64 find_bound(double target, AddKeys add_keys) {
    if (threadIdx.x == 0) shared->digits = shared->before = 0;
    u64 fixed = 0;
    for (int shift = 64 - kDigitBits; shift >= 0; shift -= kDigitBits) {
      for (int i = static_cast<int>(threadIdx.x); i < kDigits; i += kSampleThreads)
        shared->mass[i] = shared->count[i] = 0;
      __syncthreads();
      add_keys(DigitHistogram{shared, fixed, shared->digits, shift});
      __syncthreads();
      if (!find_digit(shift, target)) return 0;
      if (shared->n_in_digit == 1) break;  // its lower digits do not matter: it is the last kept key
      fixed |= static_cast<u64>(kDigits - 1) << shift;
    }
    const u64 found = shared->digits;
    __syncthreads();
    return found;
  }

  // A value that at least k logits reach, since the maxima of k chunks do.
  ZINC_DEVICE float lower_bound_of_top_k(int k) {
    const u64 found = find_bound(static_cast<double>(k), [&](const DigitHistogram& histogram) {
      for (int c = static_cast<int>(threadIdx.x); c < n_chunks; c += kSampleThreads)
        histogram.add(sort_key(chunk_best[c], c), 1);
    });
    return found == 0 ? -kMaxFloat : fmaxf(from_sortable_bits(static_cast<u32>(found >> 32)), -kMaxFloat);
  }

  ZINC_DEVICE void keep_top_k(int k) {
    bound = find_bound(static_cast<double>(k), [&](const DigitHistogram& histogram) {
      visit([&](float logit, int id) { histogram.add(sort_key(logit, id), 1); });
    });
  }

  ZINC_DEVICE void keep_top_p(double target) {
    const u64 found = find_bound(target, [&](const DigitHistogram& histogram) {
      visit([&](float logit, int id) { histogram.add(sort_key(logit, id), fixed_point_weight(logit, best, 1.0f)); });
    });
    bound = max(bound, found);
  }

  // The token at which the cumulative mass of the kept tokens passes `uniform` of the total.
  ZINC_DEVICE int token_at(float inv_temperature, double uniform) {
    for (int i = warp_id(); i < n_candidates; i += kSampleWarps) {
      u64 mass = 0;
      visit_chunk(chunks[i], [&](float logit, int) { mass += fixed_point_weight(logit, best, inv_temperature); });
      mass = warp_sum(mass);
      if (lane_id() == 0) masses[i] = mass;
    }
    __syncthreads();
    const int per_thread = (n_candidates + kSampleThreads - 1) / kSampleThreads;
    const int begin = min(n_candidates, static_cast<int>(threadIdx.x) * per_thread),
              end = min(n_candidates, begin + per_thread);
    u64 own = 0;
    for (int i = begin; i < end; ++i) own += masses[i];
    const u64 total = block_total(own);
    const double target = fmin(uniform * static_cast<double>(total), static_cast<double>(total) - 1.0);
    u64 sum = block_prefix(own) - own;
    if (static_cast<double>(sum) <= target && static_cast<double>(sum + own) > target) {
      int i = begin;
      while (static_cast<double>(sum + masses[i]) <= target) sum += masses[i++];
      shared->chunk = chunks[i];
      shared->before = sum;
    }
    __syncthreads();
    return token_in_chunk(shared->chunk, shared->before, inv_temperature, target);
  }

  ZINC_DEVICE int token_in_chunk(int chunk, u64 sum, float inv_temperature, double target) {
    for (int first = chunk * kSampleChunk;; first += 32) {
      const int id = first + lane_id();
      const float logit = id < vocab ? logits[id] : neg_inf();
      const bool is_kept = logit >= threshold && sort_key(logit, id) >= bound;
      const u64 running = sum + warp_prefix_sum(is_kept ? fixed_point_weight(logit, best, inv_temperature) : 0);
      const u32 passed = __ballot_sync(0xFFFFFFFFu, static_cast<double>(running) > target);
      if (passed != 0) return first + __ffs(static_cast<int>(passed)) - 1;
      sum = __shfl_sync(0xFFFFFFFFu, running, 31);
    }
  }
};

// The same filters as the host's Sampler (sample/sampler.cc), in the same order.
ZINC_DEVICE int sample_token(SampledRow& row, const int* sampling) {
  const float inv_temperature = __int_as_float(sampling[kInvTemperature]);
  const float top_p = __int_as_float(sampling[kTopP]), log_min_p = __int_as_float(sampling[kLogMinP]);
  const int top_k = sampling[kTopK];
  const bool cuts_k = top_k > 0 && top_k < row.vocab;
  if (cuts_k) row.threshold = row.lower_bound_of_top_k(top_k);
  row.find_candidates();
  if (cuts_k) row.keep_top_k(top_k);
  if (top_p < 1.0f) {
    const double target = static_cast<double>(top_p) * static_cast<double>(row.remaining_mass(1.0f));
    if (!cuts_k) {
      row.threshold = fmaxf(row.best - kNearLogits, -kMaxFloat);
      row.find_candidates();
      if (static_cast<double>(row.remaining_mass(1.0f)) < target) {
        row.threshold = -kMaxFloat;
        row.find_candidates();
      }
    }
    row.keep_top_p(target);
  }
  row.bound = max(row.bound, static_cast<u64>(sortable_bits(fmaxf(row.best + log_min_p, -kMaxFloat))) << 32);
  return row.token_at(inv_temperature, __hiloint2double(sampling[kUniformHigh], sampling[kUniformLow]));
}

// The last row of a sequence stores its token in the sequence's slot. If no logit is selectable, the host gets -1 and
// the slot token 0.
extern "C" __global__ void __launch_bounds__(kSampleThreads) sample_rows(SampleParams p) {
  __shared__ SampledRow::Shared shared;
  launch_dependents();
  wait_dependency();
  const int row = static_cast<int>(blockIdx.x), n_rows = p.step.counts[kOutputs];
  if (row >= n_rows) return;
  const int* sampling = p.sampling + row * kSamplingInts;
  const bool is_sampled = row < p.step.counts[kSampledRows] && __int_as_float(sampling[kInvTemperature]) > 0.0f;
  if (!is_sampled && warp_id() > 0) return;
  float best = p.best[row * kSampleSplits + lane_id()];
  int token = p.best_id[row * kSampleSplits + lane_id()];
  warp_argmax(best, token);
  if (token == kNoIndex) {
    token = -1;
  } else if (is_sampled) {
    const int n_chunks = chunks_of(p.vocab);
    const long long first_chunk = static_cast<long long>(row) * n_chunks;
    SampledRow sampled_row{p.logits + static_cast<long long>(row) * p.vocab,
                           p.chunk_best + first_chunk,
                           p.chunks + first_chunk,
                           p.chunk_masses + first_chunk,
                           p.vocab,
                           n_chunks,
                           0,
                           fminf(best, kMaxFloat),
                           -kMaxFloat,
                           0,
                           &shared};
    token = sample_token(sampled_row, sampling);
  }
  if (threadIdx.x != 0) return;
  p.sampled[row] = token;
  const int seq = p.step.seq_of_token[p.step.output_rows[row]];
  if (row + 1 == n_rows || p.step.seq_of_token[p.step.output_rows[row + 1]] != seq) {
    p.step.last_sampled[p.step.slots[seq]] = max(token, 0);
  }
}

}  // namespace zinc::simt
