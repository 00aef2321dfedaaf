// Runs steps of a model on a backend from simple descriptions: sequences with their tokens and positions. Allocates
// pages and keeps the arrays of steps in flight. For tests of the Plan interface.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/split/split_backend.h"
#include "backend/split/tensor_backend.h"
#include "gguf/gguf_file.h"
#include "model/model.h"

namespace zinc {

// A GGUF file in memory, loaded on a backend.
class LoadedModel {
 public:
  static Result<std::unique_ptr<LoadedModel>> load(std::string bytes, const BackendInfo& backend, int n_threads = 1);
  // Split over devices, named as for open_backend(); `stages` of its graph. backend_info() is the last device's.
  static Result<std::unique_ptr<LoadedModel>> load_split(std::string bytes, const std::vector<std::string>& devices,
                                                         const std::function<split::Stages(const Graph&)>& stages);
  static Result<std::unique_ptr<LoadedModel>> load_split(std::string bytes,
                                                         std::vector<std::shared_ptr<Backend>> devices,
                                                         const BackendInfo& last_device,
                                                         const std::function<split::Stages(const Graph&)>& stages);
  // Every layer divided over the devices (backend/split/tensor_backend.h).
  static Result<std::unique_ptr<LoadedModel>> load_tensor_parallel(std::string bytes,
                                                                   const std::vector<std::string>& devices);
  const Model& model() const { return model_; }
  Backend& backend() const { return *backend_; }
  const BackendInfo& backend_info() const { return *backend_info_; }
  DeviceWeights& weights() const { return *weights_; }

 private:
  static Result<std::unique_ptr<LoadedModel>> read(std::string bytes);
  Status upload();
  std::string bytes_;
  std::unique_ptr<GgufFile> file_;
  Model model_;
  const BackendInfo* backend_info_ = nullptr;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<DeviceWeights> weights_;
};

std::vector<TokenId> random_tokens(size_t n, uint32_t seed);  // from the tiny models' vocabulary

struct TestSequence {
  int slot = 0;
  std::vector<std::vector<PageId>> pages;  // per page group, by position / kPageTokens
  int rope_scaling = 0;
};

struct SequenceTokens {
  TestSequence* sequence;
  int32_t position;  // of the first token
  std::vector<TokenId> tokens;
  std::vector<float> hidden = {};   // for draft graphs
  bool has_output = true;           // of last_logits()
  std::vector<int> row_slots = {};  // as in StepInputs; empty: only the state after the last token is written
};

struct SequenceOutput {
  std::vector<float> logits;     // after every token, row-major
  std::vector<float> hidden;     // of every token
  std::vector<TokenId> sampled;  // after every token
};

class StepRunner {
 public:
  enum class PageOrder { ascending, shuffled };
  // All sequences together may use 40 pages per group. `min_class_tokens`, `n_rope_scalings`: as in Bucket.
  explicit StepRunner(const LoadedModel& model, PageOrder order = PageOrder::ascending, const Format& kv_format = k_f32,
                      int min_class_tokens = 1, int n_rope_scalings = 1);

  // The largest chunk whose logits are bit-identical to those of single tokens.
  size_t max_exact_chunk() const { return max_exact_chunk_; }

  TestSequence new_sequence(int slot) const;  // without pages; steps add them. REQUIRES: slot < kSlots
  PageId allocate_page(int group);
  std::vector<SequenceOutput> step(const std::vector<SequenceTokens>& batch);
  // A step whose outputs are the logits after the last token of each sequence that has one; returns them all.
  std::vector<float> last_logits(const std::vector<SequenceTokens>& batch);
  std::vector<SequenceOutput> draft_step(
      const std::vector<SequenceTokens>& batch);  // REQUIRES: the model has a draft graph

  void start(const std::vector<SequenceTokens>& batch);  // two steps may be in flight
  StepOutput wait();                                     // the output of the oldest step
  CacheMemory& cache() { return *cache_; }
  const std::vector<PageGroup>& groups() const { return groups_; }

  static constexpr int kSlots = 32, kMaxSeqs = 6, kMaxTokens = 256, kPages = 40;

 private:
  struct Arrays;  // the storage of a StepInputs
  std::vector<SequenceOutput> run_step(Plan& plan, const std::vector<SequenceTokens>& batch);
  std::unique_ptr<Arrays> prepare(const std::vector<SequenceTokens>& batch);
  void add_pages(TestSequence& sequence, int32_t end_position);

  size_t max_exact_chunk_ = kMaxTokens;
  std::vector<PageGroup> groups_;
  std::vector<std::vector<PageId>> free_pages_;  // per group; allocated from the back
  std::unique_ptr<CacheMemory> cache_;
  std::unique_ptr<Plan> plan_, draft_plan_;
  std::deque<std::shared_ptr<Arrays>> in_flight_;
};

}  // namespace zinc
