// Collects the importance matrix of a model (quantize/importance_matrix.h): evaluates windows of a text on the model's
// backend and sums the squares of the input of every linear layer, for routed experts over the tokens that were routed
// to each. Every backend can do it, because a plan with Bucket::keep_values lets the host read all activations of a
// step. One thread at a time; sums are computed on all cores.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "engine/model_runner.h"
#include "quantize/importance_matrix.h"

namespace zinc {

struct ImportanceOptions {
  int window = 0;                           // tokens; REQUIRES: > 0
  bool has_output_head = false;             // also of the output head, as llama-imatrix with --process-output
  int n_threads = 0;                        // of the sums; 0: one per core
  std::function<bool()> is_cancelled = {};  // asked between steps
};

class ImportanceCollector {
 public:
  // REQUIRES: the model is uploaded, and outlives the collector.
  static Result<ImportanceCollector> create(const ModelInstance& model, ImportanceOptions options);

  ImportanceMatrix empty_matrix() const;  // every entry, with sums and counts of 0
  // Fails if the entries are not those of empty_matrix().
  Status check_entries(const ImportanceMatrix& matrix) const;
  // Evaluates one window from an empty cache and adds it to `matrix`, which is unchanged after an error. Sums are
  // rounded to float after each window, so that the result does not depend on where a run was interrupted. REQUIRES:
  // the tokens are in the vocabulary, at most ImportanceOptions::window of them; check_entries(matrix).
  Status add_window(std::span<const TokenId> tokens, ImportanceMatrix& matrix);

  int step_tokens() const { return step_tokens_; }

 private:
  struct LayerInput {  // of one or more linear layers: q, k and v have the same
    Value x, ids;      // ids of the selected experts; none: not routed
    size_t n_mat = 1, n_columns = 0;
    std::vector<std::string> weights = {};
    std::vector<double> sums = {};     // [n_mat, n_columns], of the current window
    std::vector<int64_t> counts = {};  // [n_mat]
    std::vector<float> row_sums = {};  // [n_columns], of a few rows
  };

  ImportanceCollector(const ModelInstance& model, ImportanceOptions options);
  void find_inputs(const Graph& graph);
  Status create_runner();
  void add_step(LayerInput& input) const;
  Status check_finite() const;

  const ModelInstance* model_;
  ImportanceOptions options_;
  std::unique_ptr<ThreadPool> threads_;
  std::vector<LayerInput> inputs_;
  int step_tokens_ = 0;
  std::unique_ptr<ModelRunner> runner_;
};

// Weights whose routed experts the text did not reach, or hardly.
struct RarelyUsedExperts {
  std::string weight;
  int n_experts = 0, n_unused = 0, n_rare = 0;  // rare: fewer than kRareExpertRows rows, but not none
};
inline constexpr int64_t kRareExpertRows = 32;
// One for each layer that has such experts: its weights are reached alike.
std::vector<RarelyUsedExperts> rarely_used_experts(const ImportanceMatrix& matrix);

}  // namespace zinc
