#include "engine/mtp_drafter.h"

#include <algorithm>

namespace zinc {
namespace {

// Rows of a sequence that wait for the next draft. When one has more (prompts, outputs without drafts), those of all
// sequences are written.
constexpr size_t kMaxPendingRows = 32;

}  // namespace

Result<std::unique_ptr<MtpDrafter>> MtpDrafter::create(const ModelInstance& model, KvCache& cache, const Bucket& step) {
  ZINC_CHECK(model.model().draft.has_value());
  std::unique_ptr<MtpDrafter> drafter(new MtpDrafter(model, cache.windows().size(), step));
  ZINC_TRY(plan, model.backend().compile(*model.model().draft, model.weights(), cache.memory(), step));
  drafter->plan_ = std::move(plan);
  return drafter;
}

// Writes the rows whose token is known: all but that of the last token in draft(). Sequences share steps.
Status MtpDrafter::write_rows(std::span<MtpSequence* const> sequences) {
  size_t n_done = 0;  // rows of the first sequence
  while (!sequences.empty()) {
    arrays_.clear();
    hidden_in_.clear();
    size_t n_free = static_cast<size_t>(step_.max_tokens);
    for (int n_seqs = 0; !sequences.empty() && n_free > 0 && n_seqs < step_.max_seqs; ++n_seqs) {
      MtpSequence& sequence = *sequences.front();
      const size_t n = std::min(sequence.tokens.size() - n_done, n_free);
      if (n > 0) add_rows(sequence, n_done, n);
      n_done += n;
      n_free -= n;
      if (n_done < sequence.tokens.size()) break;
      sequence.n_written += static_cast<int>(n_done);
      sequence.hidden.erase(sequence.hidden.begin(), sequence.hidden.begin() + static_cast<ptrdiff_t>(n_done * dim_));
      sequence.tokens.clear();
      sequences = sequences.subspan(1);
      n_done = 0;
    }
    if (arrays_.n_tokens() == 0) continue;
    StepInputs inputs = arrays_.inputs();
    inputs.hidden = hidden_in_;
    plan_->start(inputs);
    if (const Result<StepOutput> output = plan_->wait(); !output.ok()) return output.error();
  }
  return ok_status();
}

void MtpDrafter::add_rows(const MtpSequence& sequence, size_t begin, size_t n) {
  arrays_.add(*sequence.cache, sequence.n_written + static_cast<int>(begin),
              std::span(sequence.tokens).subspan(begin, n));
  const std::span<const float> hidden = std::span(sequence.hidden).subspan(begin * dim_, n * dim_);
  hidden_in_.insert(hidden_in_.end(), hidden.begin(), hidden.end());
}

void MtpDrafter::observe(const AcceptedRows& rows) {
  if (rows.tokens.empty()) return;
  ZINC_CHECK(rows.hidden.size() == rows.tokens.size() * dim_);
  const auto [found, is_new] = sequences_.try_emplace(rows.id);
  MtpSequence& sequence = found->second;
  sequence.cache = rows.cache;
  // Hidden states that stay, from position n_written - 1 on.
  const int n_kept = rows.begin - (sequence.n_written - 1);
  if (is_new || n_kept < 0 || n_kept > static_cast<int>(n_hidden(sequence))) {
    sequence.n_written = rows.begin;
    sequence.tokens.clear();
    sequence.hidden.assign(dim_, 0.0f);
  } else {
    sequence.hidden.resize(static_cast<size_t>(n_kept) * dim_);
    sequence.tokens.resize(static_cast<size_t>(std::max(0, n_kept - 1)));
  }
  const bool is_first_written = sequence.hidden.empty();  // by the last draft, with the last token
  const std::span<const TokenId> unwritten = rows.tokens.subspan(is_first_written ? 1 : 0);
  sequence.tokens.insert(sequence.tokens.end(), unwritten.begin(), unwritten.end());
  sequence.hidden.insert(sequence.hidden.end(), rows.hidden.begin(), rows.hidden.end());
  if (sequence.tokens.size() > kMaxPendingRows) flush_all();
}

void MtpDrafter::flush(RequestId id) {
  const auto found = sequences_.find(id);
  if (found == sequences_.end()) return;
  MtpSequence* const sequence = &found->second;
  if (Status s = write_rows({&sequence, 1}); failed_.ok()) failed_ = s;
}

void MtpDrafter::flush_all() {
  std::vector<MtpSequence*> all;
  for (auto& [id, sequence] : sequences_) all.push_back(&sequence);
  if (Status s = write_rows(all); failed_.ok()) failed_ = s;
}

// Sequences whose hidden states are known up to the token before the last. If their rows do not fit the step together,
// some are written before.
Result<std::vector<MtpDrafter::Entry>> MtpDrafter::schedule(std::span<DraftQuery> queries) {
  std::vector<Entry> entries;
  size_t n_rows = 0;
  for (DraftQuery& query : queries) {
    query.draft.clear();
    const auto found = sequences_.find(query.id);
    if (query.max_tokens <= 0 || found == sequences_.end()) continue;
    MtpSequence& sequence = found->second;
    if (sequence.hidden.empty() || static_cast<size_t>(sequence.n_written) + n_hidden(sequence) != query.tokens.size())
      continue;
    sequence.cache = query.cache;
    const size_t max_rows = static_cast<size_t>(step_.max_tokens - step_.max_seqs);
    if (n_rows + n_hidden(sequence) > max_rows) {
      MtpSequence* const pending = &sequence;
      if (Status s = write_rows({&pending, 1}); !s.ok()) return s.error();
    }
    n_rows += n_hidden(sequence);
    entries.push_back({&query, &sequence});
  }
  return entries;
}

// Round 0 has all rows up to the last token, round r the drafted token r - 1 with the block's own hidden state.
void MtpDrafter::add_round(Entry& entry, int round) {
  DraftQuery& query = *entry.query;
  MtpSequence& sequence = *entry.sequence;
  const int n_tokens = static_cast<int>(query.tokens.size());
  if (round == 0) {
    arrays_.add(*query.cache, sequence.n_written, query.tokens.subspan(static_cast<size_t>(sequence.n_written)));
    hidden_in_.insert(hidden_in_.end(), sequence.hidden.begin(), sequence.hidden.end());
    sequence.n_written = n_tokens;
    sequence.tokens.clear();
    sequence.hidden.clear();
  } else {
    arrays_.add(*query.cache, n_tokens + round - 1, {&query.draft.back(), 1});
    const auto own = hidden_out_.begin() + static_cast<ptrdiff_t>(entry.row * dim_);
    hidden_in_.insert(hidden_in_.end(), own, own + static_cast<ptrdiff_t>(dim_));
  }
  arrays_.request_greedy_token();
  entry.row = static_cast<size_t>(arrays_.n_tokens()) - 1;
}

Status MtpDrafter::run_round(std::span<Entry> entries) {
  arrays_.request_hidden();
  StepInputs inputs = arrays_.inputs();
  inputs.hidden = hidden_in_;
  plan_->start(inputs);
  ZINC_TRY(output, plan_->wait());
  for (size_t i = 0; i < entries.size(); ++i) entries[i].query->draft.push_back(output.sampled[i]);
  hidden_out_.assign(output.hidden.begin(), output.hidden.end());
  return ok_status();
}

Status MtpDrafter::draft(std::span<DraftQuery> queries) {
  if (!failed_.ok()) return std::exchange(failed_, ok_status());
  ZINC_TRY(entries, schedule(queries));
  RoundTimer timer;
  for (int round = 0; !entries.empty(); ++round) {
    arrays_.clear();
    hidden_in_.clear();
    for (Entry& entry : entries) add_round(entry, round);
    if (Status s = run_round(entries); !s.ok()) return s;
    timer.end_round();
    std::erase_if(entries, [&](const Entry& entry) {
      std::vector<TokenId>& draft = entry.query->draft;
      const bool has_token = draft.back() >= 0;  // else no logit is finite
      if (!has_token) draft.pop_back();
      return !has_token || round + 1 == entry.query->max_tokens;
    });
  }
  seconds_per_token_ = timer.seconds_per_round();
  return ok_status();
}

}  // namespace zinc
