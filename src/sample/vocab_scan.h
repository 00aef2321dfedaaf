// The logits of one row, block by block. One vectorized pass computes the largest logit of each block; then argmax,
// top-k and min-p touch only the few blocks that can contain a survivor. NaN and -infinity count as masked, +infinity
// as the largest finite number. Holds a view of the logits until the next read(); one thread; no allocation once warm.
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

  bool empty() const;  // no finite logit

  // All below: REQUIRES !empty().
  float max() const { return max_; }
  TokenId argmax() const;  // lowest id on ties

  // A lower bound of the k-th largest logit (k >= 1); the lowest float if the block maxima do not give one.
  float top_k_bound(size_t k);

  // Sum of exp((logit - max) / temperature) over the vocabulary, a multiple of kWeightUnit.
  double mass(float temperature);

  // The first token, in order of id, whose cumulative sum exceeds `uniform` times the last mass(). REQUIRES: uniform in
  // [0, 1).
  TokenId token_at(double uniform) const;

  // Writes the logits >= threshold in order of id and returns their number. REQUIRES: out has the size of the
  // vocabulary.
  size_t gather(float threshold, std::span<Candidate> out) const;

 private:
  std::span<const float> logits_;
  std::vector<float> block_max_;
  std::vector<float> selection_;    // scratch of top_k_bound
  std::vector<double> block_mass_;  // of the last mass()
  float max_ = 0.0f;
  float inv_temperature_ = 1.0f;  // of the last mass()
};

}  // namespace zinc
