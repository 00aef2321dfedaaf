#include "engine/mtp_file_drafter.h"

#include <algorithm>

#include "engine/token_difference.h"

namespace zinc {

Status check_mtp_file_tokens(const ModelInstance& model) {
  ZINC_TRY(draft_tokens, Tokenizer::load(*model.mtp_file()));
  ZINC_TRY(target_tokens, Tokenizer::load(model.file()));
  const std::string difference = token_difference(draft_tokens, target_tokens);
  if (difference.empty()) return ok_status();
  return fail(ErrorCode::unsupported,
              "{}: an MTP file must have the vocabulary of the model, but {}; use the MTP file that was published for "
              "this model",
              model.mtp_file()->name(), difference);
}

Result<std::unique_ptr<MtpFileDrafter>> MtpFileDrafter::create(const ModelInstance& model, KvCache& cache,
                                                               const Bucket& step) {
  ZINC_CHECK(model.mtp_file() != nullptr);
  std::unique_ptr<MtpFileDrafter> drafter(new MtpFileDrafter(model, cache.windows().size()));
  ZINC_TRY(plan, model.backend().compile(*model.model().draft, model.weights(), cache.memory(), step));
  drafter->plan_ = std::move(plan);
  return drafter;
}

void MtpFileDrafter::observe(const AcceptedRows& rows) {
  if (rows.tokens.empty()) return;
  ZINC_CHECK(rows.hidden.size() == rows.tokens.size() * dim_);
  const std::span<const float> last = rows.hidden.last(dim_);
  FedSequence& sequence = sequences_[rows.id];
  sequence.n_fed = rows.begin + static_cast<int>(rows.tokens.size());
  sequence.hidden.assign(last.begin(), last.end());
}

// Sequences whose hidden state before the last token is known.
std::vector<MtpFileDrafter::Entry> MtpFileDrafter::start(std::span<DraftQuery> queries) const {
  std::vector<Entry> entries;
  for (DraftQuery& query : queries) {
    query.draft.clear();
    const auto found = sequences_.find(query.id);
    if (query.max_tokens <= 0 || found == sequences_.end()) continue;
    if (found->second.n_fed + 1 != std::ssize(query.tokens)) continue;
    entries.push_back({&query, query.tokens.back(), found->second.hidden});
  }
  return entries;
}

Status MtpFileDrafter::run_round(std::span<Entry> entries) {
  arrays_.clear();
  hidden_in_.clear();
  for (const Entry& entry : entries) {
    arrays_.add(*entry.query->cache, static_cast<int>(entry.query->tokens.size()) - 2, {&entry.token, 1});
    arrays_.request_greedy_token();
    hidden_in_.insert(hidden_in_.end(), entry.hidden.begin(), entry.hidden.end());
  }
  arrays_.request_hidden();
  StepInputs inputs = arrays_.inputs();
  inputs.hidden = hidden_in_;
  plan_->start(inputs);
  ZINC_TRY(output, plan_->wait());
  for (size_t i = 0; i < entries.size(); ++i) {
    const std::span<const float> hidden = output.hidden.subspan(i * dim_, dim_);
    entries[i].token = output.sampled[i];
    entries[i].hidden.assign(hidden.begin(), hidden.end());
    if (entries[i].token >= 0) entries[i].query->draft.push_back(entries[i].token);  // else no logit is finite
  }
  return ok_status();
}

Status MtpFileDrafter::draft(std::span<DraftQuery> queries) {
  std::vector<Entry> entries = start(queries);
  RoundTimer timer;
  while (!entries.empty()) {
    if (Status s = run_round(entries); !s.ok()) return s;
    timer.end_round();
    std::erase_if(entries, [](const Entry& entry) {
      return entry.token < 0 || std::ssize(entry.query->draft) == entry.query->max_tokens;
    });
  }
  seconds_per_token_ = timer.seconds_per_round();
  return ok_status();
}

}  // namespace zinc
