// Speculative decoding: selects a drafter and a draft length for each sequence of a decode-only step and learns from
// the results. Where drafts do not pay, it drafts nothing but a probe now and then. The output never depends on it.
// Engine thread only.
#pragma once

#include <array>
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
  // Drafts for the queries with max_tokens > 0. A drafter that fails is dropped; the error is in the stats.
  void draft(std::span<DraftQuery> queries);

  void observe(const AcceptedRows& rows);
  // n_tried: drafted tokens before the end of the output; of those, n_accepted were kept.
  void observe_verification(RequestId id, int n_drafted, int n_tried, int n_accepted);
  // A step without prompt tokens; `seconds`: since the step before it had ended, with the time of draft().
  void observe_step(int n_rows, double seconds);
  const SpeculationStats& stats() const { return stats_; }

 private:
  enum DrafterKind : uint8_t { kNgram, kModel, kNone };
  struct Sequence {
    SpeculationMode mode = SpeculationMode::off;
    std::array<AcceptanceRate, 2> acceptance;  // by DrafterKind
    AcceptanceRate found;                      // drafts that wants_draft() expected and the drafter had
    DrafterKind drafter = kNone;               // of the next draft
    bool is_expected = false;                  // by wants_draft(), in the next step
  };
  enum class Tokens : uint8_t { known, lack_last };
  bool uses_model_drafter(RequestId id) const;
  DraftCost cost_of(int n_rows) const;
  bool may_draft(int n_rows);
  bool choose(std::span<const DraftQuery> queries, int n_rows, Tokens tokens);
  void choose_longest(int n_rows);
  void add_probes(int n_rows);
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
  bool is_next_awaited_ = false;                  // wants_draft() was true: the next step is not pipelined
  bool is_awaited_ = false, has_drafts_ = false;  // of the step that was planned last
  DraftDecision decision_ = DraftDecision::off;   // the last one
  std::vector<DraftLength> lengths_;              // of choose(), by query
  std::vector<DrafterKind> drafters_;
  SpeculationStats stats_;
};

}  // namespace zinc
