#include "engine/speculation.h"

#include <algorithm>

namespace zinc {
namespace {

constexpr double kInitialAcceptance = 0.7;  // before anything is measured: high enough to measure it
constexpr double kAllWeight = 8, kAllDecay = 0.99;
constexpr double kOwnWeight = 3, kOwnDecay = 0.9;
// Steps after which drafts that do not pay are tried again, one token per sequence: with a step of two rows at 1.3
// times the cost of one row, that is 0.3 % of the time.
constexpr int kProbeInterval = 96;
constexpr double kNewestRoundWeight = 0.25;  // of a new measurement of a round

}  // namespace

std::string_view speculation_mode_name(SpeculationMode mode) {
  static constexpr std::array<std::string_view, 5> kNames = {"auto", "off", "ngram", "mtp", "draft"};
  return kNames[static_cast<size_t>(mode)];
}

std::optional<SpeculationMode> parse_speculation_mode(std::string_view name) {
  using enum SpeculationMode;
  for (const SpeculationMode mode : {automatic, off, ngram, mtp, draft}) {
    if (speculation_mode_name(mode) == name) return mode;
  }
  return std::nullopt;
}

Speculation::Speculation(const SpeculationOptions& options, std::unique_ptr<Drafter> model_drafter, int max_rows)
    : mode_(options.mode),
      ignores_cost_(options.ignores_cost),
      max_rows_(max_rows),
      model_drafter_(std::move(model_drafter)),
      all_sequences_{AcceptanceRate(kInitialAcceptance, kAllWeight, kAllDecay),
                     AcceptanceRate(kInitialAcceptance, kAllWeight, kAllDecay)} {}

void Speculation::add(const RequestState& request) {
  if (!is_on()) return;
  const SpeculationMode mode = request.request.speculation.value_or(mode_);
  const auto own = [&](DrafterKind kind) { return AcceptanceRate(all_sequences_[kind].rate(), kOwnWeight, kOwnDecay); };
  const auto [entry, is_new] = sequences_.try_emplace(request.id, Sequence{mode, {own(kNgram), own(kModel)}, kNone});
  if (is_new && !request.request.prediction.empty()) {
    ngram_drafter_.set_prediction(request.id, request.prompt_size, request.request.prediction);
  }
}

bool Speculation::uses_model_drafter(RequestId id) const {
  const auto sequence = sequences_.find(id);
  return model_drafter_ && sequence != sequences_.end() && sequence->second.mode != SpeculationMode::off &&
         sequence->second.mode != SpeculationMode::ngram;
}

bool Speculation::needs_hidden(RequestId id) const {
  return uses_model_drafter(id) && model_drafter_->needs_hidden();
}

void Speculation::flush(RequestId id) {
  if (uses_model_drafter(id)) model_drafter_->flush(id);
}

void Speculation::remove(RequestId id) {
  if (sequences_.erase(id) == 0) return;
  ngram_drafter_.remove(id);
  if (model_drafter_) model_drafter_->remove(id);
}

// Text that occurred before is drafted better by lookup, and for nothing.
Speculation::DrafterKind Speculation::select_drafter(const Sequence& sequence, const DraftQuery& query) {
  using enum SpeculationMode;
  if (sequence.mode == off || query.max_tokens == 0) return kNone;
  if ((sequence.mode == automatic || sequence.mode == ngram) && ngram_drafter_.has_draft(query)) return kNgram;
  if (sequence.mode != ngram && model_drafter_ && model_drafter_->has_draft(query)) return kModel;
  return kNone;
}

Speculation::Choice Speculation::choose(std::span<const DraftQuery> queries, int n_rows) {
  Choice choice;
  for (const DraftQuery& query : queries) {
    const Sequence& sequence = sequences_.at(query.id);
    const DrafterKind drafter = select_drafter(sequence, query);
    choice.has_candidate = choice.has_candidate || drafter != kNone;
    choice.drafters.push_back(drafter);
    choice.lengths.push_back({.acceptance = drafter == kNone ? 0 : sequence.acceptance[drafter].rate(),
                              .max_tokens = drafter == kNone ? 0 : query.max_tokens,
                              .has_rounds = drafter == kModel});
  }
  if (ignores_cost_) {
    int n_free = max_rows_ - n_rows;
    for (DraftLength& length : choice.lengths) {
      length.n_tokens = std::min(length.max_tokens, n_free);
      n_free -= length.n_tokens;
    }
    return choice;
  }
  const DraftCost cost{.steps = &step_cost_, .round_s = round_s_, .n_rows = n_rows, .max_rows = max_rows_};
  stats_.predicted_speedup = choice.has_candidate ? choose_draft_lengths(choice.lengths, cost) : 1;
  if (choice.has_candidate && is_probe_due() && n_rows + static_cast<int>(queries.size()) <= max_rows_) {
    for (size_t i = 0; i < queries.size(); ++i) {
      if (choice.drafters[i] != kNone) choice.lengths[i].n_tokens = std::max(choice.lengths[i].n_tokens, 1);
    }
  }
  return choice;
}

bool Speculation::is_probe_due() const { return n_steps_since_draft_ >= kProbeInterval; }

bool Speculation::wants_draft(std::span<const DraftQuery> queries) {
  const Choice choice = choose(queries, static_cast<int>(queries.size()));
  return std::ranges::any_of(choice.lengths, [](const DraftLength& length) { return length.n_tokens > 0; });
}

void Speculation::plan(std::span<DraftQuery> queries, int n_rows) {
  const Choice choice = choose(queries, n_rows);
  for (size_t i = 0; i < queries.size(); ++i) {
    queries[i].max_tokens = choice.lengths[i].n_tokens;
    sequences_.at(queries[i].id).drafter = choice.drafters[i];
  }
}

void Speculation::draft_with(Drafter& drafter, DrafterKind kind, std::span<DraftQuery> queries) {
  const auto is_own = [&](const DraftQuery& query) {
    return query.max_tokens > 0 && sequences_.at(query.id).drafter == kind;
  };
  const std::span<DraftQuery> own(queries.begin(), std::ranges::stable_partition(queries, is_own).begin());
  if (own.empty()) return;
  if (const Status drafted = drafter.draft(own); !drafted.ok()) {
    for (DraftQuery& query : own) query.draft.clear();
    mode_ = SpeculationMode::off;
    stats_.error = drafted.error().message;
  }
}

void Speculation::draft(std::span<DraftQuery> queries) {
  draft_with(ngram_drafter_, kNgram, queries);
  if (!model_drafter_) return;
  int n_rounds = 0;
  for (const DraftQuery& query : queries) {
    if (sequences_.at(query.id).drafter == kModel) n_rounds = std::max(n_rounds, query.max_tokens);
  }
  if (n_rounds == 0) return;
  const Clock::time_point begin = Clock::now();
  draft_with(*model_drafter_, kModel, queries);
  draft_s_ = std::chrono::duration<double>(Clock::now() - begin).count();
  const double round_s = draft_s_ / n_rounds;
  round_s_ = round_s_ == 0 ? round_s : round_s_ + kNewestRoundWeight * (round_s - round_s_);
}

void Speculation::observe(const AcceptedRows& rows) {
  if (uses_model_drafter(rows.id)) model_drafter_->observe(rows);
}

void Speculation::observe_verification(RequestId id, int n_drafted, int n_accepted) {
  Sequence& sequence = sequences_.at(id);
  sequence.acceptance[sequence.drafter].observe(n_drafted, n_accepted);
  all_sequences_[sequence.drafter].observe(n_drafted, n_accepted);
  n_steps_since_draft_ = 0;
  ++stats_.n_drafts;
  stats_.n_drafted_tokens += static_cast<uint64_t>(n_drafted);
  stats_.n_accepted_tokens += static_cast<uint64_t>(n_accepted);
  stats_.acceptance = all_sequences_[sequence.drafter].rate();
}

void Speculation::observe_step(int n_rows, double seconds) {
  if (!is_on()) return;
  step_cost_.observe(n_rows, std::max(0.0, seconds - draft_s_));
  draft_s_ = 0;
  ++n_steps_since_draft_;
}

}  // namespace zinc
