// Speculative decoding: selects a drafter and a draft length for each sequence of a decode-only step and learns from
// the results. Where drafts do not pay, it drafts nothing but a probe now and then, so that the step is as fast as
// without. The output never depends on it. Engine thread only.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/draft_length.h"
#include "engine/drafter.h"
#include "engine/engine_stats.h"
#include "engine/ngram_drafter.h"
#include "engine/request_state.h"
#include "engine/speculation_options.h"

namespace zinc {

class Speculation {
 public:
  // model_drafter: an MTP block or a draft model; nullptr: none. max_rows: of a step, with drafts.
  Speculation(const SpeculationOptions& options, std::unique_ptr<Drafter> model_drafter, int max_rows);

  bool is_on() const { return mode_ != SpeculationMode::off; }
  bool needs_hidden(RequestId id) const;  // of the request's tokens in every step
  void add(const RequestState& request);  // admitted, for the first time or again
  void flush(RequestId id);               // before the sequence is inserted into the prefix cache
  void remove(RequestId id);              // before the sequence's pages are released

  // Whether plan() would draft for one of these sequences. Their tokens may lack the one that is being sampled.
  bool wants_draft(std::span<const DraftQuery> queries);
  // Sets the queries' max_tokens: at most as many as they have, 0 for sequences without a draft. n_rows: of the step
  // without drafts.
  void plan(std::span<DraftQuery> queries, int n_rows);
  // Drafts for the queries with max_tokens > 0. A drafter that fails is not used again; the error is in the stats.
  void draft(std::span<DraftQuery> queries);

  void observe(const AcceptedRows& rows);
  void observe_verification(RequestId id, int n_drafted, int n_accepted);
  // A step without prompt tokens; `seconds`: since the step before it had ended, with the time of draft().
  void observe_step(int n_rows, double seconds);
  const SpeculationStats& stats() const { return stats_; }

 private:
  enum DrafterKind : uint8_t { kNgram, kModel, kNone };
  struct Sequence {
    SpeculationMode mode = SpeculationMode::off;
    std::array<AcceptanceRate, 2> acceptance;  // by DrafterKind
    DrafterKind drafter = kNone;               // of the next draft
  };
  struct Choice {
    std::vector<DraftLength> lengths;  // by query
    std::vector<DrafterKind> drafters;
    bool has_candidate = false;
  };
  bool uses_model_drafter(RequestId id) const;
  Choice choose(std::span<const DraftQuery> queries, int n_rows);
  DrafterKind select_drafter(const Sequence& sequence, const DraftQuery& query);
  bool is_probe_due() const;
  void draft_with(Drafter& drafter, DrafterKind kind, std::span<DraftQuery> queries);

  SpeculationMode mode_;
  bool ignores_cost_;
  int max_rows_;
  NgramDrafter ngram_drafter_;
  std::unique_ptr<Drafter> model_drafter_;
  std::map<RequestId, Sequence> sequences_;
  std::array<AcceptanceRate, 2> all_sequences_;  // by DrafterKind
  StepCost step_cost_;
  double round_s_ = 0;  // of the model drafter, per drafted token
  double draft_s_ = 0;  // of the last draft()
  int n_steps_since_draft_ = 0;
  SpeculationStats stats_;
};

}  // namespace zinc
