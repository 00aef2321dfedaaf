// The choice of the next token: the most likely one, or a draw among those that top-k, top-p and min-p leave.
//
// "More likely" means a higher logit, and the lower id among equals: as one number, a key. Every cut leaves the keys
// from some bound on, found digit by digit; weights are whole numbers of 2^-32, so that sums are exact in any order and
// the token is the one that the host would draw. Two launches: sample_parts, 32 blocks a row, leaves the best of each
// part and of each kSampleChunk logits; sample_rows, one block a row, reads again only chunks that can hold a survivor.
#include "backend/simt/routing.h"

namespace zinc::simt {

using u64 = unsigned long long;

constexpr int kDrawWarps = kDrawThreads / 32;
constexpr int kDigitBits = 8, kDigits = 1 << kDigitBits;
constexpr float kLargest = 3.402823466e38f;
constexpr float kNearLogits = 9.0f;  // top-p nearly always ends among the tokens this near to the best

ZINC_DEVICE int chunks_of(int vocab) { return (vocab + kSampleChunk - 1) / kSampleChunk; }

// The best of one part of a row of logits; NaN never is.
ZINC_KERNEL sample_parts(SampleParams p) {
  __shared__ float values[kWarps];
  __shared__ int places[kWarps];
  let_next_start();
  wait_for_previous();
  const int row = static_cast<int>(blockIdx.y), part = static_cast<int>(blockIdx.x);
  if (row >= p.step.counts[kOutputs]) return;
  const int n_chunks = chunks_of(p.vocab), per_part = (n_chunks + kSampleSplits - 1) / kSampleSplits;
  const int begin = part * per_part, past = min(n_chunks, begin + per_part);
  const float* logits = p.logits + static_cast<long long>(row) * p.vocab;
  float best = lowest();
  int place = kNowhere;
  if (row < p.step.counts[kDraws]) {
    for (int chunk = begin + warp_id(); chunk < past; chunk += kWarps) {
      float largest = lowest();
      for (int i = chunk * kSampleChunk + lane_id(); i < min(p.vocab, (chunk + 1) * kSampleChunk); i += 32) {
        if (logits[i] > largest) largest = logits[i];
        if (logits[i] > best) {
          best = logits[i];
          place = i;
        }
      }
      largest = lanes_max(largest, 32);
      if (lane_id() == 0) p.chunk_best[static_cast<long long>(row) * n_chunks + chunk] = largest;
    }
  } else {
    const int end = min(p.vocab, past * kSampleChunk);
    for (int i = begin * kSampleChunk + static_cast<int>(threadIdx.x); i < end; i += kThreads) {
      if (logits[i] > best) {
        best = logits[i];
        place = i;
      }
    }
  }
  lanes_best(best, place);
  if (lane_id() == 0) {
    values[warp_id()] = best;
    places[warp_id()] = place;
  }
  __syncthreads();
  if (warp_id() > 0) return;
  best = lane_id() < kWarps ? values[lane_id()] : lowest();
  place = lane_id() < kWarps ? places[lane_id()] : kNowhere;
  lanes_best(best, place);
  if (lane_id() == 0) {
    p.best[row * kSampleSplits + part] = best;
    p.best_id[row * kSampleSplits + part] = place;
  }
}

// e^d, the same operations as on the host (sample/softmax_exp.h), in units of 2^-32.
ZINC_DEVICE u64 weight_units(float logit, float best, float inv_temperature) {
  const float d = (kLargest < logit ? kLargest : logit) - best, distance = d * inv_temperature;
  constexpr float kFarthest = -86.0f, kRound = 12582912.0f, kCoarse = 0.001953125f;
  if (!(distance > kFarthest)) return 0;
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
  const float whole = weight < kCoarse ? (weight + kCoarse) - kCoarse : weight;
  return static_cast<u64>(whole * 4294967296.0f);
}

// Larger for larger logits; zeros of both signs are equal.
ZINC_DEVICE u32 ordered(float logit) {
  const u32 bits = __float_as_uint(logit + 0.0f);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
ZINC_DEVICE float from_ordered(u32 key) { return __uint_as_float(key & 0x80000000u ? key & 0x7FFFFFFFu : ~key); }
ZINC_DEVICE u64 key_of(float logit, int id) { return static_cast<u64>(ordered(logit)) << 32 | ~static_cast<u32>(id); }

ZINC_DEVICE u64 lanes_sum(u64 x) {
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(0xFFFFFFFFu, x, step);
  return x;
}
// Sum over this lane and those before it.
ZINC_DEVICE u64 lanes_prefix(u64 x) {
  for (int step = 1; step < 32; step *= 2) {
    const u64 before = __shfl_up_sync(0xFFFFFFFFu, x, step);
    if (lane_id() >= step) x += before;
  }
  return x;
}

// One row that a block draws from. Every method is called by all its threads.
struct DrawRow {
  const float* logits;
  const float* chunk_best;
  int* chunks;  // those that hold a logit of at least `threshold`, ascending
  u64* masses;  // of these
  int vocab, n_chunks, n_listed;
  float best, threshold;
  u64 bound;  // keys from here on are left

  struct Shared {
    u64 mass[kDigits];
    u32 count[kDigits];
    u64 sums[kDrawWarps];
    u64 digits, before;  // of the bound so far; what keys above them sum to
    int n_in_digit, chunk;
  };
  Shared* shared;

  // Adds the keys that begin with `digits` up, by the digit that follows.
  struct Tally {
    Shared* shared;
    u64 fixed, digits;  // which bits are the first digits', and they themselves
    int shift;
    ZINC_DEVICE void add(u64 key, u64 mass) const {
      if ((key & fixed) != digits) return;
      const int digit = static_cast<int>(key >> shift) & (kDigits - 1);
      atomicAdd(&shared->mass[digit], mass);
      atomicAdd(&shared->count[digit], 1u);
    }
  };

  ZINC_DEVICE u64 block_total(u64 x) {
    x = lanes_sum(x);
    if (lane_id() == 0) shared->sums[warp_id()] = x;
    __syncthreads();
    u64 sum = 0;
    for (int w = 0; w < kDrawWarps; ++w) sum += shared->sums[w];
    __syncthreads();
    return sum;
  }

  // Sum over this thread and those before it.
  ZINC_DEVICE u64 block_prefix(u64 x) {
    const u64 own = lanes_prefix(x);
    if (lane_id() == 31) shared->sums[warp_id()] = own;
    __syncthreads();
    u64 sum = own;
    for (int w = 0; w < warp_id(); ++w) sum += shared->sums[w];
    __syncthreads();
    return sum;
  }

  ZINC_DEVICE void list_chunks() {
    n_listed = 0;
    for (int first = 0; first < n_chunks; first += kDrawThreads) {
      const int chunk = first + static_cast<int>(threadIdx.x);
      const u64 is_listed = chunk < n_chunks && chunk_best[chunk] >= threshold ? 1 : 0;
      const u64 place = block_prefix(is_listed);
      if (is_listed) chunks[n_listed + static_cast<int>(place) - 1] = chunk;
      n_listed += static_cast<int>(block_total(is_listed));
    }
  }

  // `take` gets each listed logit that is left and its id.
  template <class Take>
  ZINC_DEVICE void visit(Take take) {
    for (int i = warp_id(); i < n_listed; i += kDrawWarps) visit_chunk(chunks[i], take);
  }
  template <class Take>
  ZINC_DEVICE void visit_chunk(int chunk, Take take) {
    for (int id = chunk * kSampleChunk + lane_id(); id < min(vocab, (chunk + 1) * kSampleChunk); id += 32) {
      const float logit = logits[id];
      if (logit >= threshold && key_of(logit, id) >= bound) take(logit, id);
    }
  }

  ZINC_DEVICE u64 mass_left(float inv_temperature) {
    u64 mass = 0;
    visit([&](float logit, int) { mass += weight_units(logit, best, inv_temperature); });
    return block_total(mass);
  }

  // Which digit the bound goes on with: the highest at which keys above and at it sum to `target`. False: none does.
  ZINC_DEVICE bool find_digit(int shift, double target) {
    if (warp_id() == 0) {
      constexpr int kEach = kDigits / 32;
      const int highest = kDigits - 1 - lane_id() * kEach;
      u64 own = 0;
      for (int i = 0; i < kEach; ++i) own += shared->mass[highest - i];
      u64 sum = shared->before + lanes_prefix(own) - own;
      int found = -1;
      for (int i = 0; i < kEach && found < 0; ++i) {
        const int digit = highest - i;
        if (shared->count[digit] > 0 && static_cast<double>(sum + shared->mass[digit]) >= target) {
          found = digit;
        } else {
          sum += shared->mass[digit];
        }
      }
      const u32 finders = __ballot_sync(0xFFFFFFFFu, found >= 0);
      __syncwarp();
      if (finders == 0 && lane_id() == 0) shared->n_in_digit = 0;
      if (finders != 0 && lane_id() == __ffs(static_cast<int>(finders)) - 1) {
        shared->n_in_digit = static_cast<int>(shared->count[found]);
        shared->digits |= static_cast<u64>(found) << shift;
        shared->before = sum;
      }
    }
    __syncthreads();
    return shared->n_in_digit > 0;
  }

  // The highest bound from which on the keys' masses sum to `target`; 0 if all have less. each(put) gives put(key,
  // mass) for every key.
  template <class Each>
  ZINC_DEVICE u64 find_bound(double target, Each each) {
    if (threadIdx.x == 0) shared->digits = shared->before = 0;
    u64 fixed = 0;
    for (int shift = 64 - kDigitBits; shift >= 0; shift -= kDigitBits) {
      for (int i = static_cast<int>(threadIdx.x); i < kDigits; i += kDrawThreads)
        shared->mass[i] = shared->count[i] = 0;
      __syncthreads();
      each(Tally{shared, fixed, shared->digits, shift});
      __syncthreads();
      if (!find_digit(shift, target)) return 0;
      if (shared->n_in_digit == 1) break;  // whatever digits follow, it is the last that is kept
      fixed |= static_cast<u64>(kDigits - 1) << shift;
    }
    const u64 found = shared->digits;
    __syncthreads();
    return found;
  }

  // A value that at least k logits reach: k chunks' best ones do.
  ZINC_DEVICE float value_reached_by(int k) {
    const u64 found = find_bound(static_cast<double>(k), [&](const Tally& tally) {
      for (int c = static_cast<int>(threadIdx.x); c < n_chunks; c += kDrawThreads)
        tally.add(key_of(chunk_best[c], c), 1);
    });
    return found == 0 ? -kLargest : fmaxf(from_ordered(static_cast<u32>(found >> 32)), -kLargest);
  }

  ZINC_DEVICE void keep_top_k(int k) {
    bound = find_bound(static_cast<double>(k), [&](const Tally& tally) {
      visit([&](float logit, int id) { tally.add(key_of(logit, id), 1); });
    });
  }

  ZINC_DEVICE void keep_top_p(double target) {
    const u64 found = find_bound(target, [&](const Tally& tally) {
      visit([&](float logit, int id) { tally.add(key_of(logit, id), weight_units(logit, best, 1.0f)); });
    });
    bound = max(bound, found);
  }

  // The token at which the running sum of what is left passes `share` of it.
  ZINC_DEVICE int token_at(float inv_temperature, double share) {
    for (int i = warp_id(); i < n_listed; i += kDrawWarps) {
      u64 mass = 0;
      visit_chunk(chunks[i], [&](float logit, int) { mass += weight_units(logit, best, inv_temperature); });
      mass = lanes_sum(mass);
      if (lane_id() == 0) masses[i] = mass;
    }
    __syncthreads();
    const int each = (n_listed + kDrawThreads - 1) / kDrawThreads;
    const int begin = min(n_listed, static_cast<int>(threadIdx.x) * each), past = min(n_listed, begin + each);
    u64 own = 0;
    for (int i = begin; i < past; ++i) own += masses[i];
    const u64 total = block_total(own);
    const double target = fmin(share * static_cast<double>(total), static_cast<double>(total) - 1.0);
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
      const float logit = id < vocab ? logits[id] : lowest();
      const bool is_left = logit >= threshold && key_of(logit, id) >= bound;
      const u64 running = sum + lanes_prefix(is_left ? weight_units(logit, best, inv_temperature) : 0);
      const u32 passed = __ballot_sync(0xFFFFFFFFu, static_cast<double>(running) > target);
      if (passed != 0) return first + __ffs(static_cast<int>(passed)) - 1;
      sum = __shfl_sync(0xFFFFFFFFu, running, 31);
    }
  }
};

// As the host's Sampler (sample/sampler.cc), cut by cut.
ZINC_DEVICE int draw_token(DrawRow& row, const int* draw) {
  const float inv_temperature = __int_as_float(draw[kInvTemperature]);
  const float top_p = __int_as_float(draw[kTopP]), log_min_p = __int_as_float(draw[kLogMinP]);
  const int top_k = draw[kTopK];
  const bool cuts_k = top_k > 0 && top_k < row.vocab;
  if (cuts_k) row.threshold = row.value_reached_by(top_k);
  row.list_chunks();
  if (cuts_k) row.keep_top_k(top_k);
  if (top_p < 1.0f) {
    const double target = static_cast<double>(top_p) * static_cast<double>(row.mass_left(1.0f));
    if (!cuts_k) {
      row.threshold = fmaxf(row.best - kNearLogits, -kLargest);
      row.list_chunks();
      if (static_cast<double>(row.mass_left(1.0f)) < target) {
        row.threshold = -kLargest;
        row.list_chunks();
      }
    }
    row.keep_top_p(target);
  }
  row.bound = max(row.bound, static_cast<u64>(ordered(fmaxf(row.best + log_min_p, -kLargest))) << 32);
  return row.token_at(inv_temperature, __hiloint2double(draw[kShareHigh], draw[kShareLow]));
}

// Chooses; the last row of a sequence leaves its token in the sequence's slot. Where no logit can be chosen the host
// gets -1, the slot token 0.
extern "C" __global__ void __launch_bounds__(kDrawThreads) sample_rows(SampleParams p) {
  __shared__ DrawRow::Shared shared;
  let_next_start();
  wait_for_previous();
  const int row = static_cast<int>(blockIdx.x), n_rows = p.step.counts[kOutputs];
  if (row >= n_rows) return;
  const int* draw = p.draws + row * kDrawInts;
  const bool is_drawn = row < p.step.counts[kDraws] && __int_as_float(draw[kInvTemperature]) > 0.0f;
  if (!is_drawn && warp_id() > 0) return;
  float best = p.best[row * kSampleSplits + lane_id()];
  int token = p.best_id[row * kSampleSplits + lane_id()];
  lanes_best(best, token);
  if (token == kNowhere) {
    token = -1;
  } else if (is_drawn) {
    const int n_chunks = chunks_of(p.vocab);
    const long long first_chunk = static_cast<long long>(row) * n_chunks;
    DrawRow drawn{p.logits + static_cast<long long>(row) * p.vocab,
                  p.chunk_best + first_chunk,
                  p.chunks + first_chunk,
                  p.chunk_masses + first_chunk,
                  p.vocab,
                  n_chunks,
                  0,
                  fminf(best, kLargest),
                  -kLargest,
                  0,
                  &shared};
    token = draw_token(drawn, draw);
  }
  if (threadIdx.x != 0) return;
  p.sampled[row] = token;
  const int seq = p.step.seq_of_token[p.step.output_rows[row]];
  if (row + 1 == n_rows || p.step.seq_of_token[p.step.output_rows[row + 1]] != seq) {
    p.step.last_sampled[p.step.slots[seq]] = max(token, 0);
  }
}

}  // namespace zinc::simt
