// The logits of one token seen block by block. One vectorised pass takes each block's largest logit; after it argmax,
// top-k and min-p touch only the few blocks that can hold a survivor. NaN and -infinity count as absent, +infinity as
// the largest finite number. Holds a view of the logits until the next read(); one thread; no allocation once warm.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/token_id.h"

namespace zinc {

struct Candidate {
  float logit;
  TokenId token;
};

class VocabScan {
 public:
  void read(std::span<const float> logits);

  bool empty() const;  // no usable logit at all

  // All below: REQUIRES !empty().
  float max() const { return max_; }
  TokenId argmax() const;  // lowest id on ties

  // A value that at least k logits reach (k >= 1); the lowest float where the blocks cannot tell.
  float value_reached_by(size_t k);

  // Sum of exp((logit - max) / temperature) over the vocabulary, in whole kWeightUnits.
  double mass(float temperature);

  // The token at which the running sum of the last mass(), in order of id, passes `share` of it. REQUIRES: share in [0,
  // 1).
  TokenId token_at(double share) const;

  // Writes the logits >= threshold in order of id and returns how many. REQUIRES: out holds the vocabulary.
  size_t gather(float threshold, std::span<Candidate> out) const;

 private:
  std::span<const float> logits_;
  std::vector<float> block_max_;
  std::vector<float> selection_;    // scratch of value_reached_by
  std::vector<double> block_mass_;  // of the last mass()
  float max_ = 0.0f;
  float inv_temperature_ = 1.0f;  // of the last mass()
};

}  // namespace zinc
