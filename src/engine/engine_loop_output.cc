// The part of EngineLoop that applies the output of a step to its requests: sampled tokens and which rows are kept,
// scores of prompts, embeddings, insertions into the prefix cache.
#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/engine_loop.h"

namespace zinc {
void EngineLoop::apply_output(const InFlightStep& done, const Result<StepOutput>& output) {
  const StepOutput out = output.ok() ? output.value() : StepOutput{};
  const size_t hidden_dim = out.hidden.size() / static_cast<size_t>(done.arrays.n_tokens());
  size_t rows_at = 0, logits_at = 0, hidden_at = 0;
  std::vector<SampledRows> constrained;  // after the other rows, which do not wait for masks
  if (!output.ok()) mask_worker_.wait();
  for (size_t i = 0; i < done.sequences.size(); ++i) {
    const ScheduledSequence& entry = done.sequences[i];
    if (!output.ok()) {
      if (auto released = deferred_releases_.extract(entry.id)) {
        cache_->release(std::move(released.mapped().cache));
      } else {
        end(*requests_.at(entry.id), StopReason::failed, output.error());
      }
      continue;
    }
    const size_t n_rows = static_cast<size_t>(done.rows[i].n_rows);
    const size_t n_logits = done.rows[i].has_logits ? static_cast<size_t>(options_.n_vocab) : 0;
    const size_t n_hidden = hidden_dim * static_cast<size_t>(entry.n_tokens);
    const std::span<const TokenId> sampled = out.sampled.subspan(rows_at, n_rows);
    const std::span<float> logits = out.logits.subspan(logits_at, n_rows * n_logits);
    const std::span<const float> hidden = out.hidden.subspan(hidden_at, n_hidden);
    rows_at += n_rows;
    logits_at += logits.size();
    hidden_at += n_hidden;
    if (auto released = deferred_releases_.extract(entry.id)) {
      release_deferred(std::move(released.mapped()));
      continue;
    }
    RequestState& request = *requests_.at(entry.id);
    const bool was_prompt = request.is_prefilling();
    if (request.draft.empty()) {  // else when it is known which rows are kept
      request.cache.n_tokens += entry.n_tokens;
      if (!request.request.embedding) observe_rows(request, entry.begin, entry.n_tokens, hidden);
    }
    if (!entry.samples_token) insert_prefix_if_due(request);
    if (was_prompt) {
      stats_.n_prefilled_tokens += static_cast<uint64_t>(entry.n_tokens);
      report_progress(request);
    }
    if (request.request.embedding) {
      accumulate_embedding(request, hidden);
      continue;
    }
    if (request.scores_prompt()) score_prompt(request, entry, logits);
    if (entry.samples_token) {
      const size_t n_sampled = 1 + request.draft.size();
      const SampledRows rows{&request, sampled.last(n_sampled), logits.last(n_sampled * n_logits), hidden};
      if (request.output.is_constrained()) {
        constrained.push_back(rows);
      } else {
        apply_output_rows(rows);
      }
    }
  }
  if (!constrained.empty()) mask_worker_.wait();
  for (const SampledRows& rows : constrained) apply_output_rows(rows);
  cache_->prefault_pages(done.arrays.n_tokens());
}

// Not again for tokens that are computed again after a preemption.
void EngineLoop::report_progress(RequestState& request) {
  const int n_done = std::min(request.cache.n_tokens, request.prompt_size);
  if (n_done <= request.n_progress) return;
  request.n_progress = n_done;
  request.request.sink->progress({n_done, request.prompt_size, request.usage.n_cached});
}

int EngineLoop::n_output_rows(const RequestState& request, const ScheduledSequence& entry) {
  if (request.scores_prompt()) return entry.n_tokens;
  return entry.samples_token ? 1 + static_cast<int>(request.draft.size()) : 0;
}

// The logits after a token are the next token's.
void EngineLoop::score_prompt(RequestState& request, const ScheduledSequence& entry, std::span<float> logits) {
  const std::span<const TokenId> tokens = request.output.tokens();
  std::vector<OutputToken>& scored = request.prompt_tokens;
  if (scored.empty()) scored.push_back({.id = tokens.front(), .logprob = std::numeric_limits<float>::quiet_NaN()});
  Logprobs logprobs;
  const size_t n_vocab = static_cast<size_t>(options_.n_vocab);
  for (int i = 0; i < entry.n_tokens && entry.begin + i + 1 < request.prompt_size; ++i) {
    const TokenId next = tokens[static_cast<size_t>(entry.begin + i + 1)];
    sampler_.logprobs(logits.subspan(static_cast<size_t>(i) * n_vocab, n_vocab), next,
                      request.output.n_prompt_logprobs(), logprobs);
    scored.push_back({.id = next, .logprob = logprobs.chosen, .top = logprobs.top});
  }
}

// A drafted token is kept if it is the one that the row before it samples, and the rows after a token that is not kept
// are ignored. So every output is what it would be without drafts.
void EngineLoop::apply_output_rows(const SampledRows& rows) {
  RequestState& request = *rows.request;
  const RequestId id = request.id;
  if (request.output.is_prompt_only()) return end(request, StopReason::max_tokens);
  const std::vector<TokenId> draft = std::exchange(request.draft, {});
  const int begin = request.cache.n_tokens - (draft.empty() ? 1 : 0);  // position of the first row
  const size_t n_logits = rows.logits.size() / rows.sampled.size();
  std::optional<StopReason> reason;
  std::optional<Error> error;
  size_t n_rows = 0;
  while (true) {
    const Result<OutputState::TokenResult> result =
        accept_row(request, rows.sampled[n_rows], rows.logits.subspan(n_rows * n_logits, n_logits),
                   begin + static_cast<int>(n_rows) + 1);
    ++n_rows;
    if (!result.ok()) {
      reason = StopReason::failed;
      error = result.error();
      break;
    }
    emit_token(request, result.value());
    reason = result.value().reason;
    if (reason || n_rows > draft.size() || draft[n_rows - 1] != result.value().id) break;
  }
  if (!draft.empty()) {
    // Of an ended output, the drafted tokens after the end were not tried.
    const size_t n_tried = reason ? n_rows - 1 : draft.size();
    keep_rows(request, static_cast<int>(n_rows), static_cast<int>(draft.size()), static_cast<int>(n_tried));
    observe_rows(request, begin, static_cast<int>(n_rows), rows.hidden);
  }
  if (reason) return end(request, *reason, std::move(error));
  if (requests_.contains(id)) insert_prefix_if_due(request);  // after sampling: a failed request is not inserted
}

void EngineLoop::keep_rows(RequestState& request, int n_rows, int n_drafted, int n_tried) {
  const int n_accepted = n_rows - 1;
  cache_->accept_rows(request.cache, n_rows);
  scheduler_.reject_draft(request.id, n_drafted - n_accepted);
  speculation_->observe_verification(request.id, n_drafted, n_tried, n_accepted);
  request.usage.n_draft_accepted += n_accepted;
  request.usage.n_draft_rejected += n_drafted - n_accepted;
}

void EngineLoop::observe_rows(const RequestState& request, int begin, int n_rows, std::span<const float> hidden) {
  if (!speculation_->is_on()) return;
  const size_t n = static_cast<size_t>(n_rows), dim = static_cast<size_t>(options_.embedding_dim);
  const std::span<const TokenId> tokens = request.output.tokens();
  speculation_->observe({.id = request.id,
                         .cache = &request.cache,
                         .begin = begin,
                         .tokens = tokens.subspan(static_cast<size_t>(begin), n),
                         .hidden = hidden.empty() ? hidden : hidden.first(n * dim)});
}

// The token after n_fed tokens. For greedy sampling the device has already found the most likely token, unless the
// logits are not finite.
Result<OutputState::TokenResult> EngineLoop::accept_row(RequestState& request, TokenId sampled, std::span<float> logits,
                                                        int n_fed) {
  record_token_time(request);
  const bool can_continue = n_fed < request.max_length;
  const std::optional<DeviceSampling> sampling = request.output.device_sampling(0);
  const bool is_greedy = sampling && sampling->temperature <= kGreedyTemperature && sampled >= 0;
  if (!is_sampled_on_device(request) && !(is_greedy && std::isfinite(logits[static_cast<size_t>(sampled)]))) {
    return request.output.accept(logits, sampler_, can_continue);
  }
  if (sampled >= 0) return request.output.accept(sampled, can_continue);
  return no_finite_logit(static_cast<uint64_t>(n_fed), static_cast<size_t>(options_.n_vocab));
}

bool EngineLoop::is_sampled_on_device(const RequestState& request) const {
  return options_.can_sample_on_device && request.output.device_sampling(0).has_value();
}

// Whether a request with n fed tokens is inserted into the prefix cache.
bool EngineLoop::should_insert_prefix(const RequestState& request, int n) const {
  if (!needs_checkpoints_) return n == request.prefill_size || n - request.n_cached_prefix >= kInsertIntervalTokens;
  if (!can_insert_prefix(request, n)) return false;
  return std::ranges::binary_search(request.checkpoints, n) || n % options_.checkpoint_interval == 0;
}

// Inserted during prefill, so that other requests can share the prefix early and the pages count as recently used.
void EngineLoop::insert_prefix_if_due(RequestState& request) {
  if (!should_insert_prefix(request, request.cache.n_tokens)) return;
  speculation_->flush(request.id);
  cache_->insert_prefix(request.cache, request.fed());
  request.n_cached_prefix = request.cache.n_tokens;
}

void EngineLoop::accumulate_embedding(RequestState& request, std::span<const float> rows) {
  const size_t dim = static_cast<size_t>(options_.embedding_dim);
  const bool is_mean = request.request.embedding == Pooling::mean;
  std::vector<float>& sum = request.embedding;
  sum.resize(dim);
  for (size_t at = is_mean ? 0 : rows.size() - dim; at < rows.size(); at += dim) {
    for (size_t i = 0; i < dim; ++i) sum[i] = (is_mean ? sum[i] : 0) + rows[at + i];
  }
  if (!request.is_prefilling()) end(request, StopReason::end_token);
}

void EngineLoop::record_token_time(RequestState& request) {
  const Clock::time_point now = Clock::now();
  if (request.first_token == Clock::time_point{}) {
    request.first_token = now;
    stats_.time_to_first_token_s.add(seconds_between(request.submitted, now));
  } else {
    stats_.inter_token_s.add(seconds_between(request.last_token, now));
  }
  request.last_token = now;
}

void EngineLoop::emit_token(RequestState& request, const OutputState::TokenResult& result) {
  if (result.is_output) {
    ++stats_.n_generated_tokens;
    request.request.sink->tokens(result.text, {&request.output.last(), 1});
  }
  if (result.reason == StopReason::end_token && !result.is_output) request.end_token = result.id;
}

}  // namespace zinc
