// Parameters of sample.cu.
#pragma once

#include "backend/simt/params/step.h"

namespace zinc::simt {

inline constexpr int kSampleSplits = 32;     // blocks that search a row of logits
inline constexpr int kSampleThreads = 1024;  // per block of sample_rows

struct SampleParams {
  Step step;
  const int* sampling;  // [kSampledRows rows, kSamplingInts]
  const float* logits;
  float* chunk_best;                 // [rows, chunks], of sampled rows
  int* chunks;                       // likewise
  unsigned long long* chunk_masses;  // likewise
  float* best;                       // [R, kSampleSplits]
  int* best_id;                      // likewise
  int* sampled;                      // [R]
  int vocab;
};

}  // namespace zinc::simt
