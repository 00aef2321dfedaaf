// Runs steps of a model on a backend from plain descriptions: which sequence gets which tokens at which position. Hands
// out pages, keeps the arrays of steps in flight. For tests of the plan seam.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "gguf/gguf_file.h"
#include "model/model.h"

namespace zinc {

// A GGUF file in memory, loaded on a backend.
class LoadedModel {
 public:
  static Result<std::unique_ptr<LoadedModel>> load(std::string bytes, const BackendInfo& backend, int n_threads = 1);
  const Model& model() const { return model_; }
  Backend& backend() const { return *backend_; }
  const BackendInfo& backend_info() const { return *backend_info_; }
  DeviceWeights& weights() const { return *weights_; }

 private:
  std::string bytes_;
  std::unique_ptr<GgufFile> file_;
  Model model_;
  const BackendInfo* backend_info_ = nullptr;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<DeviceWeights> weights_;
};

std::vector<TokenId> random_tokens(size_t n, uint32_t seed);  // of the tiny models' vocabulary

struct TestSequence {
  int slot = 0;
  std::vector<std::vector<PageId>> pages;  // per page group, by position / kPageTokens
};

struct TokenRun {
  TestSequence* sequence;
  int32_t position;  // of the first token
  std::vector<TokenId> tokens;
  std::vector<float> hidden = {};  // for draft graphs
};

struct RunOutput {
  std::vector<float> logits;     // after every token, row after row
  std::vector<float> hidden;     // of every token
  std::vector<TokenId> sampled;  // after every token
};

class StepRunner {
 public:
  enum class PageOrder { ascending, shuffled };
  // All sequences together may hold 40 pages of each group.
  explicit StepRunner(const LoadedModel& model, PageOrder order = PageOrder::ascending,
                      const Format& kv_format = k_f32);

  // Tokens of one sequence in a step that give the bits of single tokens.
  size_t longest_run() const { return longest_run_; }

  TestSequence new_sequence(int slot) const;  // without pages; steps add them. REQUIRES: slot < kSlots
  PageId take_page(int group);
  std::vector<RunOutput> step(const std::vector<TokenRun>& runs);
  std::vector<RunOutput> draft_step(const std::vector<TokenRun>& runs);  // REQUIRES: the model has a draft graph

  void start(const std::vector<TokenRun>& runs);  // two steps may be in flight
  StepOutput wait();                              // the oldest, as the plan gives it
  CacheMemory& cache() { return *cache_; }
  const std::vector<PageGroup>& groups() const { return groups_; }

  static constexpr int kSlots = 6, kMaxTokens = 256, kPages = 40;

 private:
  struct Arrays;  // what a StepInputs points to
  std::vector<RunOutput> run_on(Plan& plan, const std::vector<TokenRun>& runs);
  std::unique_ptr<Arrays> prepare(const std::vector<TokenRun>& runs);
  void add_pages(TestSequence& sequence, int32_t end_position);

  size_t longest_run_ = kMaxTokens;
  std::vector<PageGroup> groups_;
  std::vector<std::vector<PageId>> free_pages_;  // per group, taken from the back
  std::unique_ptr<CacheMemory> cache_;
  std::unique_ptr<Plan> plan_, draft_plan_;
  std::deque<std::shared_ptr<Arrays>> in_flight_;
};

}  // namespace zinc
