// The tokens still in the race, in order of id, and the cuts that shorten the list. "More likely" means a higher logit,
// and the lower id among equals, so every cut keeps a well-defined set whatever the library's sort does.
// A cut finds its boundary by one histogram and sorts only the bucket it falls into.
// Belongs to one thread; no allocation once warm.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/token_id.h"
#include "sample/vocab_scan.h"

namespace zinc {

class Candidates {
 public:
  // Starts over with the logits of `scan` that are at least `threshold`.
  void gather(const VocabScan& scan, size_t n_vocab, float threshold);

  void keep_top_k(size_t k);                    // the k most likely. REQUIRES: k >= 1
  void keep_top_p(float p, double total_mass);  // the fewest most likely with p * total_mass; all, if they have less
  void keep_above(float threshold);             // logits >= threshold
  double mass();                                // sum of exp(logit - max)

  // The token at which the running sum of exp((logit - max) / temperature) passes `share` of its total.
  // REQUIRES: not empty, share in [0, 1).
  TokenId token_at(float temperature, double share);

  std::span<const Candidate> list() const { return std::span(buffer_).first(n_); }

 private:
  void weigh(float temperature);
  void keep_prefix(double target);
  void compact(Candidate last_kept);

  std::vector<Candidate> buffer_;  // as long as the vocabulary; the first n_ are the list
  size_t n_ = 0;
  float max_ = 0.0f;
  std::vector<float> weights_;  // of the list, as the last use needed them
  std::vector<size_t> bucket_;  // scratch: indices of the one a cut falls into
};

}  // namespace zinc
