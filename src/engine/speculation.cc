#include "engine/speculation.h"

#include <algorithm>
#include <utility>

namespace zinc {
namespace {

constexpr double kInitialAcceptance = 0.7;  // before anything is measured: high enough to measure it
constexpr double kAllWeight = 8, kAllDecay = 0.99;
constexpr double kOwnWeight = 3, kOwnDecay = 0.9;
constexpr double kInitialFound = 0.7;
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
  const AcceptanceRate found(kInitialFound, kOwnWeight, kOwnDecay);
  const auto [entry, is_new] = sequences_.try_emplace(request.id, Sequence{mode, {own(kNgram), own(kModel)}, found});
  if (is_new && !request.request.prediction.empty()) {
    ngram_drafter_.set_prediction(request.id, request.prompt_size, request.request.prediction);
  }
}

bool Speculation::uses_model_drafter(RequestId id) const {
  const auto sequence = sequences_.find(id);
  return model_drafter_ && sequence != sequences_.end() && sequence->second.mode != SpeculationMode::off &&
         sequence->second.mode != SpeculationMode::ngram;
}

bool Speculation::needs_hidden(RequestId id) const { return uses_model_drafter(id) && model_drafter_->needs_hidden(); }

void Speculation::flush(RequestId id) {
  if (uses_model_drafter(id)) model_drafter_->flush(id);
}

void Speculation::remove(RequestId id) {
  if (sequences_.erase(id) == 0) return;
  ngram_drafter_.remove(id);
  if (model_drafter_) model_drafter_->remove(id);
}

// Text that occurred before is drafted better by lookup, which takes next to no time.
Speculation::DrafterKind Speculation::select_drafter(const Sequence& sequence, const DraftQuery& query) {
  using enum SpeculationMode;
  if (sequence.mode == off || query.max_tokens == 0) return kNone;
  if ((sequence.mode == automatic || sequence.mode == ngram) && ngram_drafter_.has_draft(query)) return kNgram;
  if (sequence.mode != ngram && model_drafter_ && model_drafter_->has_draft(query)) return kModel;
  return kNone;
}

DraftCost Speculation::cost_of(int n_rows) const {
  return {.steps = &step_cost_, .round_s = round_s_, .n_rows = n_rows, .max_rows = max_rows_};
}

bool Speculation::is_probe_due() const { return n_steps_since_draft_ >= kProbeInterval; }

// Drafts are compared with plain steps of as many sequences: those have to be measured, and again from time to time.
bool Speculation::may_draft(int n_rows) {
  if (ignores_cost_) return true;
  decision_ = DraftDecision::unmeasured;
  if (!step_cost_.is_known(n_rows)) return false;
  decision_ = DraftDecision::not_paying;
  return is_probe_due() || can_drafts_pay(cost_of(n_rows));
}

// Sets lengths_ and drafters_. Returns whether any sequence drafts.
bool Speculation::choose(std::span<const DraftQuery> queries, int n_rows, Tokens tokens) {
  lengths_.clear();
  drafters_.clear();
  for (const DraftQuery& query : queries) {
    const Sequence& sequence = sequences_.at(query.id);
    const DrafterKind drafter = select_drafter(sequence, query);
    drafters_.push_back(drafter);
    DraftLength length;
    if (drafter != kNone) {
      const double found = tokens == Tokens::lack_last ? sequence.found.rate() : 1;
      length = {.acceptance = found * sequence.acceptance[drafter].rate(),
                .max_tokens = query.max_tokens,
                .runs_model = drafter == kModel};
    }
    lengths_.push_back(length);
  }
  if (ignores_cost_) {
    choose_longest(n_rows);
  } else {
    const double speedup = choose_draft_lengths(lengths_, cost_of(n_rows));
    if (tokens == Tokens::known) stats_.predicted_speedup = speedup;
    if (is_probe_due()) add_probes(n_rows);
  }
  const bool has_drafter = std::ranges::any_of(drafters_, [](DrafterKind kind) { return kind != kNone; });
  decision_ = has_drafter ? DraftDecision::not_paying : DraftDecision::no_draft;
  return std::ranges::any_of(lengths_, [](const DraftLength& length) { return length.n_tokens > 0; });
}

void Speculation::choose_longest(int n_rows) {
  int n_free = max_rows_ - n_rows;
  for (DraftLength& length : lengths_) {
    length.n_tokens = std::min(length.max_tokens, n_free);
    n_free -= length.n_tokens;
  }
}

// One token for every sequence that has a draft, as far as the step has rows for it.
void Speculation::add_probes(int n_rows) {
  int n_free = max_rows_ - n_rows;
  for (const DraftLength& length : lengths_) n_free -= length.n_tokens;
  for (DraftLength& length : lengths_) {
    if (length.max_tokens == 0 || length.n_tokens > 0 || n_free == 0) continue;
    length.n_tokens = 1;
    --n_free;
  }
}

bool Speculation::wants_draft(std::span<const DraftQuery> queries) {
  const int n_rows = static_cast<int>(queries.size());
  is_next_awaited_ = may_draft(n_rows) && choose(queries, n_rows, Tokens::lack_last);
  for (size_t i = 0; is_next_awaited_ && i < queries.size(); ++i) {
    sequences_.at(queries[i].id).is_expected = lengths_[i].n_tokens > 0;
  }
  return is_next_awaited_;
}

void Speculation::plan(std::span<DraftQuery> queries, int n_rows) {
  is_awaited_ = std::exchange(is_next_awaited_, false);
  const bool has_drafts = may_draft(n_rows) && choose(queries, n_rows, Tokens::known);
  if (has_drafts || is_awaited_) n_steps_since_draft_ = 0;
  for (size_t i = 0; i < queries.size(); ++i) {
    Sequence& sequence = sequences_.at(queries[i].id);
    queries[i].max_tokens = has_drafts ? lengths_[i].n_tokens : 0;
    sequence.drafter = has_drafts ? drafters_[i] : kNone;
    if (std::exchange(sequence.is_expected, false)) sequence.found.observe(1, queries[i].max_tokens > 0 ? 1 : 0);
  }
  const double plain_s = step_cost_.seconds(n_rows);
  if (plain_s > 0) stats_.row_cost = step_cost_.seconds(n_rows + 1) / plain_s - 1;
}

void Speculation::draft_with(Drafter& drafter, DrafterKind kind, std::span<DraftQuery> queries) {
  const auto is_own = [&](const DraftQuery& query) {
    return query.max_tokens > 0 && sequences_.at(query.id).drafter == kind;
  };
  const std::span<DraftQuery> own(queries.begin(), std::stable_partition(queries.begin(), queries.end(), is_own));
  if (own.empty()) return;
  const Status drafted = drafter.draft(own);
  if (drafted.ok()) return;
  for (DraftQuery& query : own) query.draft.clear();
  stats_.error = drafted.error().message;
}

void Speculation::draft(std::span<DraftQuery> queries) {
  const Clock::time_point begin = Clock::now();
  draft_with(ngram_drafter_, kNgram, queries);
  if (model_drafter_) {
    draft_with(*model_drafter_, kModel, queries);
    if (const double seconds = model_drafter_->seconds_per_token(); seconds > 0) {
      round_s_ = round_s_ == 0 ? seconds : round_s_ + kNewestRoundWeight * (seconds - round_s_);
    }
    if (!stats_.error.empty()) model_drafter_.reset();
  }
  has_drafts_ = std::ranges::any_of(queries, [](const DraftQuery& query) { return !query.draft.empty(); });
  draft_s_ = std::chrono::duration<double>(Clock::now() - begin).count();
}

void Speculation::observe(const AcceptedRows& rows) {
  if (uses_model_drafter(rows.id)) model_drafter_->observe(rows);
}

void Speculation::observe_verification(RequestId id, int n_drafted, int n_tried, int n_accepted) {
  Sequence& sequence = sequences_.at(id);
  sequence.acceptance[sequence.drafter].observe(n_tried, n_accepted);
  all_sequences_[sequence.drafter].observe(n_tried, n_accepted);
  ++stats_.n_drafts;
  stats_.n_drafted_tokens += static_cast<uint64_t>(n_drafted);
  stats_.n_accepted_tokens += static_cast<uint64_t>(n_accepted);
  stats_.acceptance = all_sequences_[sequence.drafter].rate();
}

// A plain step that waited for the one before in vain is slower than one in a pipeline and does not count.
void Speculation::observe_step(int n_rows, double seconds) {
  ++stats_.n_steps[static_cast<size_t>(has_drafts_ ? DraftDecision::drafted : decision_)];
  if (!is_on()) return;
  if (has_drafts_ || !is_awaited_) step_cost_.observe(n_rows, std::max(0.0, seconds - draft_s_));
  draft_s_ = 0;
  is_awaited_ = has_drafts_ = false;
  ++n_steps_since_draft_;
}

}  // namespace zinc
