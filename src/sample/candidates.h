// The candidate tokens, in order of id, and the truncations (top-k, top-p, min-p) that shorten the list. "More likely"
// means a higher logit, and the lower id on ties, so every truncation keeps a well-defined set whatever the sort
// algorithm is. A truncation finds its boundary with one histogram and sorts only the bucket it falls into. One thread;
// no allocation once warm.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/token_id.h"
#include "sample/vocab_scan.h"

namespace zinc {

class Candidates {
 public:
  // Restarts with the logits of `scan` that are at least `threshold`.
  void gather(const VocabScan& scan, size_t n_vocab, float threshold);

  void keep_top_k(size_t k);                    // the k most likely. REQUIRES: k >= 1
  void keep_top_p(float p, double total_mass);  // smallest set of most likely tokens with mass >= p * total_mass
  void keep_above(float threshold);             // logits >= threshold
  double mass();                                // sum of exp(logit - max)

  // The first token whose cumulative sum of exp((logit - max) / temperature) exceeds `uniform` times the total (inverse
  // CDF). REQUIRES: not empty, uniform in [0, 1).
  TokenId token_at(float temperature, double uniform);

  std::span<const Candidate> list() const { return std::span(buffer_).first(n_); }

 private:
  void compute_weights(float temperature);
  void keep_prefix(double target);
  void compact(Candidate last_kept);

  std::vector<Candidate> buffer_;  // size of the vocabulary; the first n_ are the list
  size_t n_ = 0;
  float max_ = 0.0f;
  std::vector<float> weights_;  // of the list, for the last operation
  std::vector<size_t> bucket_;  // scratch: indices in the boundary bucket
};

}  // namespace zinc
