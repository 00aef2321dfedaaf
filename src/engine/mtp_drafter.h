// Drafts with the MTP block of the target model (Model::draft). Row p of the block is token p with the target's hidden
// state of position p - 1; it predicts token p + 1. Its keys and values are a layer of the target's own cache: the row
// of position p depends on no later token, so that the prefix cache shares it with the other layers. Later drafted
// tokens continue with the block's own hidden states; their rows are written again once the tokens are accepted.
//
// The hidden state before the first observed position is unknown after a prefix cache hit: that row gets zeros, as
// position 0 does. This costs acceptance for a few tokens at most. Engine thread only.
#pragma once

#include <map>
#include <memory>

#include "engine/drafter.h"
#include "engine/model_instance.h"
#include "engine/step_arrays.h"

namespace zinc {

class MtpDrafter final : public Drafter {
 public:
  // `cache`: of the target model; both must outlive the drafter. `step`: largest_draft_step().
  // REQUIRES: the model is uploaded and has a draft graph.
  static Result<std::unique_ptr<MtpDrafter>> create(const ModelInstance& model, KvCache& cache, const Bucket& step);

  std::string_view name() const override { return "mtp"; }
  bool needs_hidden() const override { return true; }
  double seconds_per_token() const override { return seconds_per_token_; }
  Status draft(std::span<DraftQuery> queries) override;
  void observe(const AcceptedRows& rows) override;
  void flush(RequestId id) override;
  void remove(RequestId id) override { sequences_.erase(id); }

 private:
  // Rows of positions before n_written are in the pages. The others wait until the next draft, which feeds them with
  // the last token, or until there are many.
  struct MtpSequence {
    const SequenceCache* cache = nullptr;
    int n_written = 0;
    std::vector<TokenId> tokens;  // from position n_written on
    std::vector<float> hidden;    // [n, dim]: from position n_written - 1 on
  };
  struct Entry {
    DraftQuery* query;
    MtpSequence* sequence;
    size_t row = 0;  // its last one in the step
  };

  MtpDrafter(const ModelInstance& model, size_t n_groups, const Bucket& step)
      : dim_(static_cast<size_t>(model.model().config.dim)), step_(step), arrays_(n_groups) {}
  size_t n_hidden(const MtpSequence& sequence) const { return sequence.hidden.size() / dim_; }
  Status write_rows(std::span<MtpSequence* const> sequences);
  void add_rows(const MtpSequence& sequence, size_t begin, size_t n);
  void flush_all();
  Result<std::vector<Entry>> schedule(std::span<DraftQuery> queries);
  void add_round(Entry& entry, int round);
  Status run_round(std::span<Entry> entries);

  size_t dim_;
  Bucket step_;
  std::unique_ptr<Plan> plan_;
  std::map<RequestId, MtpSequence> sequences_;
  StepArrays arrays_;
  std::vector<float> hidden_in_;   // [T, dim] of the step
  std::vector<float> hidden_out_;  // [entries, dim]: after the last row of each
  double seconds_per_token_ = 0;
  Status failed_ = ok_status();  // of rows written outside of draft(), which reports it
};

}  // namespace zinc
