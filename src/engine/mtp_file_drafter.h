// Drafts with a separate MTP file of the target model (ModelInstance::add_mtp_file), which has no keys and values of
// its own. Every row of a draft is at the position of the last token that the target was fed and reads the target's
// keys and values up to there. The first row has the sequence's last token and the target's hidden state of that
// position, each later one the token drafted before and the hidden state that the row before it returned. Nothing is
// written to the cache, so nothing is to be rolled back. Engine thread only.
#pragma once

#include <map>
#include <memory>

#include "engine/drafter.h"
#include "engine/model_instance.h"
#include "engine/step_arrays.h"

namespace zinc {

// Whether the tokens of the model's MTP file are those of the model. The error says what differs. REQUIRES: it has one.
Status check_mtp_file_tokens(const ModelInstance& model);

class MtpFileDrafter final : public Drafter {
 public:
  // `cache`: of the target model; both must outlive the drafter. `step`: largest_draft_step().
  // REQUIRES: the model is uploaded and has an MTP file.
  static Result<std::unique_ptr<MtpFileDrafter>> create(const ModelInstance& model, KvCache& cache, const Bucket& step);

  std::string_view name() const override { return "mtp"; }
  bool needs_hidden() const override { return true; }
  double seconds_per_token() const override { return seconds_per_token_; }
  Status draft(std::span<DraftQuery> queries) override;
  void observe(const AcceptedRows& rows) override;
  void remove(RequestId id) override { sequences_.erase(id); }

 private:
  struct FedSequence {
    int n_fed = 0;              // tokens, to the target
    std::vector<float> hidden;  // [dim]: after the last of them
  };
  struct Entry {
    DraftQuery* query;
    TokenId token;              // of the next row
    std::vector<float> hidden;  // [dim]
  };

  MtpFileDrafter(const ModelInstance& model, size_t n_groups)
      : dim_(static_cast<size_t>(model.model().config.dim)), arrays_(n_groups) {}
  std::vector<Entry> start(std::span<DraftQuery> queries) const;
  Status run_round(std::span<Entry> entries);

  size_t dim_;
  std::unique_ptr<Plan> plan_;
  std::map<RequestId, FedSequence> sequences_;
  StepArrays arrays_;
  std::vector<float> hidden_in_;  // [entries, dim] of the step
  double seconds_per_token_ = 0;
};

}  // namespace zinc
