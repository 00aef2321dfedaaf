// Drafts with a second, smaller model of the same vocabulary. It has a KV cache of its own, with a prefix cache, and
// computes all sequences of a call together: one step feeds the tokens that its cache lacks, each further step adds one
// token to every draft. Tokens stay on the device between these steps. A long prompt is fed over several calls, one
// step each, so that no call takes longer than that; until then its drafts are empty. Engine thread only.
#pragma once

#include <array>
#include <map>
#include <memory>

#include "engine/drafter.h"
#include "engine/model_instance.h"
#include "engine/step_arrays.h"

namespace zinc {

// Whether `draft` can draft for `target`: the same vocabulary, and no recurrent layers, whose states cannot return to
// the last accepted token. The error says what differs.
Status check_draft_model(const ModelInstance& draft, const ModelInstance& target);

struct DraftModelOptions {
  CacheSizes cache;          // EngineMemory::draft_cache
  Bucket step;               // largest_draft_step()
  int max_chunk_tokens = 1;  // of one sequence in one step
};

class DraftModelDrafter final : public Drafter {
 public:
  // Uploads the model if it is not yet. REQUIRES: check_draft_model().
  static Result<std::unique_ptr<DraftModelDrafter>> create(ModelInstance model, const DraftModelOptions& options);
  ~DraftModelDrafter() override;

  std::string_view name() const override { return "draft"; }
  Status draft(std::span<DraftQuery> queries) override;
  double seconds_per_token() const override { return seconds_per_token_; }
  void remove(RequestId id) override;

  const KvCache& cache() const { return *cache_; }

 private:
  // Cache of one sequence. Its n_tokens are those that it shared with the sequence at the last call: pages behind a
  // window of these positions are released, those of later positions are not.
  struct DraftSequence {
    SequenceCache cache;
    std::vector<TokenId> fed;  // tokens whose keys and values are in the pages: n_tokens, then drafts
  };
  // A query of the call.
  struct Entry {
    DraftQuery* query;
    DraftSequence* sequence;
    int n_new;          // tokens that the cache lacks
    int n_fed = 0;      // of those, fed by this call
    int n_drafted = 0;  // tokens that this call drafts
  };

  DraftModelDrafter(ModelInstance model, const DraftModelOptions& options)
      : model_(std::move(model)), options_(options), arrays_{StepArrays(0), StepArrays(0)} {}
  DraftSequence* find_or_admit(const DraftQuery& query);
  std::vector<Entry> schedule(std::span<DraftQuery> queries);
  void start_step(std::span<const Entry> entries, int round);
  Status run_rounds(std::span<const Entry> entries);

  ModelInstance model_;
  DraftModelOptions options_;
  std::vector<int> rope_contexts_;  // positions by RoPE scaling
  std::unique_ptr<KvCache> cache_;
  std::unique_ptr<Plan> plan_;
  std::map<RequestId, DraftSequence> sequences_;
  std::array<StepArrays, 2> arrays_;  // of the steps in flight
  double seconds_per_token_ = 0;
};

}  // namespace zinc
