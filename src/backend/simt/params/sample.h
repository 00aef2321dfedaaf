// Parameters of sample.cu.
#pragma once

#include "backend/simt/params/step.h"

namespace zinc::simt {

inline constexpr int kSampleSplits = 32;     // blocks that search a row of logits
inline constexpr int kSampleChunk = 64;      // logits per chunk whose maximum is stored
inline constexpr int kSampleThreads = 1024;  // per block of sample_rows

// Sampling parameters of a row in the step's upload: floats by their bits.
enum SamplingField : int {
  kInvTemperature = 0,
  kTopK = 1,
  kTopP = 2,
  kLogMinP = 3,
  kUniformLow = 4,
  kUniformHigh = 5,
  kSamplingInts = 6
};
struct SampleParams {
  Step step;
  const int* sampling;  // [kSampledRows rows, kSamplingInts]; an inverse temperature of 0: greedy
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
