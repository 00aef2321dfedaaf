#include "server/generation.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/sha256.h"
#include "server/random_id.h"

namespace zinc {
namespace {

constexpr std::string_view kRejected = "rejected";
constexpr size_t kMaxInlineLogprobs = 200;  // with log-probabilities; serialized in a few milliseconds

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// The client's namespace, divided further by the request's salt.
CacheNamespace salted(CacheNamespace base, const std::string& salt) {
  if (salt.empty()) return base;
  Sha256 hash;
  hash.update(std::as_bytes(std::span(&base, 1)));
  hash.update(std::as_bytes(std::span(salt)));
  const Sha256::Digest digest = hash.finish();
  CacheNamespace out = 0;
  std::memcpy(&out, digest.data(), sizeof out);
  return out;
}

}  // namespace

void Generation::start(const ApiDialect& dialect, PreparedRequest prepared, const Client& client,
                       EventLoopNotifier& notifier, WorkerQueue& worker_queue, std::shared_ptr<Reply> reply) {
  const std::shared_ptr<Generation> self(
      new Generation(dialect, std::move(prepared), client, notifier, worker_queue, std::move(reply)));
  if (const std::optional<ApiError> error = self->submit_more()) {
    self->is_done_ = true;
    self->cancel_remaining();
    self->write_log(kRejected);
    return self->reply_->send(error_response(*error, dialect.error_format));
  }
  self->begin();
  self->reply_->on_disconnect([self] {
    if (std::exchange(self->is_done_, true)) return;  // generated, but not sent: already logged and counted
    self->cancel_remaining();
    self->write_log(stop_reason_name(StopReason::cancelled));
  });
}

Generation::Generation(const ApiDialect& dialect, PreparedRequest prepared, const Client& client,
                       EventLoopNotifier& notifier, WorkerQueue& worker_queue, std::shared_ptr<Reply> reply)
    : dialect_(dialect),
      prepared_(std::move(prepared)),
      client_(client),
      notifier_(notifier),
      worker_queue_(worker_queue),
      reply_(std::move(reply)) {
  const ChatRequest& chat = prepared_.request;
  for (const Request& request : prepared_.input.requests) n_prompt_tokens_ += static_cast<int>(request.prompt.size());
  metadata_ = {
      .id = replica_id(prepared_.replica),
      .model = prepared_.model->has_name(chat.model) ? chat.model : prepared_.model->name,
      .created_s =
          std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count(),
      .n_prompt_tokens = n_prompt_tokens_,
      .load_s = prepared_.load_s,
      .include_usage = chat.include_usage,
      .with_logprobs = chat.options.n_top_logprobs >= 0,
      .with_tokens = chat.return_tokens,
      .is_echoed = chat.echo,
      .echoed = std::move(prepared_.echoed),
      .seal_reasoning = chat.seal_reasoning,
      .on_finished = std::move(prepared_.on_response)};
  response_id_ = metadata_.id;
  choices_.resize(prepared_.input.requests.size() * static_cast<size_t>(chat.n));
}

std::optional<ApiError> Generation::submit_more() {
  const auto is_running = [](const ChoiceState& state) { return state.was_submitted && !state.is_done; };
  auto n_running = std::ranges::count_if(choices_, is_running);
  while (n_submitted_ < choices_.size() && n_running < prepared_.model->limits.max_sequences) {
    const Result<RequestId> id = submit(n_submitted_);
    if (!id.ok() && n_running > 0) return {};  // the queue is full: tried again when one of these ends
    if (!id.ok()) return api_error(id.error());
    choices_[n_submitted_].id = id.value();
    choices_[n_submitted_].was_submitted = true;
    ++n_submitted_;
    const size_t n = static_cast<size_t>(prepared_.request.n);
    if (n_submitted_ % n == 0) prepared_.input.requests[n_submitted_ / n - 1].prompt = {};  // no longer needed
    ++n_running;
  }
  return {};
}

Result<RequestId> Generation::submit(size_t index) {
  const ChatRequest& chat = prepared_.request;
  const size_t n = static_cast<size_t>(chat.n);
  ChoiceState& state = choices_[index];
  state.sink = std::make_shared<BufferingSink>(
      notifier_, weak_from_this(),
      BufferingSink::Options{.tokens = chat.options.n_top_logprobs >= 0 || chat.return_tokens,
                             .progress = chat.include_progress});
  state.output.emplace(*prepared_.model, chat, prepared_.input.parser);
  Request request = prepared_.input.requests[index / n];
  request.options.stream = index % n;
  request.client = client_.name;
  request.cache_namespace = salted(client_.cache_namespace, chat.cache_salt);
  request.cache_share = client_.cache_share;
  request.sink = state.sink;
  return prepared_.model->engine->submit(std::move(request));
}

void Generation::begin() {
  std::string out;
  if (prepared_.request.stream) {
    reply_->start_stream(dialect_.stream_type);
    writer_ = dialect_.make_stream(std::move(metadata_));
    writer_->begin(out);
  }
  const size_t n = static_cast<size_t>(prepared_.request.n);
  for (size_t i = 0; prepared_.request.echo && i < choices_.size(); ++i) {
    apply_delta(i, ContentDelta{prepared_.input.prompt_texts[i / n]}, out);
  }
  if (writer_) reply_->write(out);
}

void Generation::on_output() {
  std::string out;
  for (size_t i = 0; i < choices_.size() && !is_done_; ++i) {
    if (choices_[i].was_submitted && !choices_[i].is_done) drain_sink(i, out);
  }
  if (is_done_) return;
  if (const std::optional<ApiError> error = submit_more()) return fail(*error, out);
  if (std::all_of(choices_.begin(), choices_.end(), [](const ChoiceState& state) { return state.is_done; })) {
    return finish(out);
  }
  if (writer_ && !out.empty()) reply_->write(out);  // a client too far behind was dropped: on_disconnect() was called
}

void Generation::drain_sink(size_t index, std::string& out) {
  ChoiceState& state = choices_[index];
  BufferingSink::PendingOutput output = state.sink->drain();
  if (output.progress && writer_) writer_->progress(static_cast<int>(index), *output.progress, out);
  if (output.n_tokens > 0 && !first_token_s_) first_token_s_ = seconds_since(start_);
  state.choice.usage.n_completion += output.n_tokens;  // provisional; the outcome has the final count
  if (writer_ && prepared_.request.include_progress) {
    writer_->token_count(static_cast<int>(index), state.choice.usage.n_completion);
  }
  std::vector<LogprobToken>& kept = writer_ ? state.new_tokens : state.choice.tokens;
  for (const OutputToken& token : output.tokens) kept.push_back(logprob_token(token));
  apply_deltas(index, state.output->push(output.text), out);
  if (output.outcome) finish_choice(index, *output.outcome, out);
}

void Generation::apply_deltas(size_t index, std::vector<Delta> deltas, std::string& out) {
  for (Delta& delta : deltas) apply_delta(index, std::move(delta), out);
  if (choices_[index].output->is_complete()) prepared_.model->engine->cancel(choices_[index].id);
}

// Streamed text is written and not kept; everything else is kept for the end of the response.
void Generation::apply_delta(size_t index, Delta delta, std::string& out) {
  ChoiceState& state = choices_[index];
  CallStart* call = std::get_if<CallStart>(&delta);
  if (call && call->id.empty()) call->id = random_call_id();
  const bool is_text = std::holds_alternative<ContentDelta>(delta) || std::holds_alternative<ReasoningDelta>(delta);
  if (!writer_ || !is_text) append_delta(state.choice.message, delta);
  if (!writer_) return;
  const size_t n_before = out.size();
  writer_->delta(static_cast<int>(index), delta, state.new_tokens, out);
  if (out.size() > n_before) state.new_tokens.clear();
}

void Generation::finish_choice(size_t index, const Outcome& outcome, std::string& out) {
  ChoiceState& state = choices_[index];
  state.is_done = true;
  Choice& choice = state.choice;
  choice.reason = outcome.reason;
  choice.stop_string = outcome.stop_string;
  choice.usage = outcome.usage;
  choice.timings = outcome.timings;
  for (const OutputToken& token : outcome.prompt_tokens) choice.prompt_tokens.push_back(logprob_token(token));
  // Clients that score an echoed prompt count one token after it, whatever it is.
  const bool shows_end = prepared_.request.echo && !choice.prompt_tokens.empty();
  if (shows_end && outcome.end_token) choice.tokens.push_back(logprob_token(*outcome.end_token));
  if (outcome.reason == StopReason::failed) {
    const Error unknown{ErrorCode::device_lost, "generation failed"};
    return fail(api_error(outcome.error.value_or(unknown)), out);
  }
  if (outcome.reason == StopReason::cancelled && !state.output->is_complete()) {
    return fail(http_error(503, "the server stopped before the response was complete"), out);
  }
  if (state.output->is_complete()) choice.reason = StopReason::end_token;
  apply_deltas(index, state.output->finish(outcome), out);
  const std::shared_ptr<Constraint>& constraint = prepared_.input.requests.front().options.constraint.grammar;
  if (index == 0 && constraint) choice.unenforced = constraint->unenforced();
  if (writer_) writer_->end_choice(static_cast<int>(index), choice, state.new_tokens, out);
}

void Generation::finish(std::string& out) {
  is_done_ = true;
  write_log(stop_reason_name(choices_.front().choice.reason));
  if (writer_) {
    writer_->end(total_usage(), out);
    if (reply_->write(out)) reply_->end_stream();
    return;
  }
  send_response();
}

// Log-probabilities of a long response are megabytes of JSON: the worker thread serializes them, so that streams do not
// wait.
void Generation::send_response() {
  const UsageTotal usage = total_usage();
  std::vector<Choice> choices;
  size_t n_tokens = 0;
  for (ChoiceState& state : choices_) {
    n_tokens += state.choice.tokens.size() + state.choice.prompt_tokens.size();
    choices.push_back(std::move(state.choice));
  }
  if (n_tokens <= kMaxInlineLogprobs)
    return reply_->send({.body = to_json(dialect_.make_response(metadata_, choices, usage))});
  worker_queue_.add(
      {.client = client_.name,
       .reply = reply_,
       .work = [self = shared_from_this(), choices = std::move(choices), usage]() -> std::function<void()> {
         const auto body =
             std::make_shared<std::string>(to_json(self->dialect_.make_response(self->metadata_, choices, usage)));
         return [self, body] { self->reply_->send({.body = std::move(*body)}); };
       }});
}

void Generation::fail(const ApiError& error, std::string& out) {
  is_done_ = true;
  cancel_remaining();
  write_log("failed");
  reply_->log["error"] = error.message;
  if (!writer_) return reply_->send(error_response(error, dialect_.error_format));
  writer_->error(error, out);
  if (reply_->write(out)) reply_->end_stream();
}

void Generation::cancel_remaining() {
  for (ChoiceState& state : choices_) {
    if (state.was_submitted && !state.is_done) prepared_.model->engine->cancel(state.id);
    state.is_done = true;
  }
}

LogprobToken Generation::logprob_token(const OutputToken& token) const {
  const Tokenizer& tokenizer = prepared_.model->tokenizer;
  static constexpr double kImpossible = -9999;  // OpenAI's value for minus infinity
  const auto number = [](float logprob) { return std::max<double>(logprob, kImpossible); };
  LogprobToken out{
      .text = std::string(tokenizer.bytes(token.id)), .logprob = number(token.logprob), .top = {}, .id = token.id};
  if (std::isnan(token.logprob)) out.logprob = token.logprob;
  for (const TokenLogprob& other : token.top) {
    out.top.push_back({.text = std::string(tokenizer.bytes(other.token)),
                       .logprob = number(other.logprob),
                       .top = {},
                       .id = other.token});
  }
  return out;
}

UsageTotal Generation::total_usage() const {
  UsageTotal out;
  const size_t n = static_cast<size_t>(prepared_.request.n);
  for (size_t i = 0; i < choices_.size(); ++i) {
    const Usage& usage = choices_[i].choice.usage;
    out.n_completion += usage.n_completion;
    out.n_reasoning += usage.n_reasoning;
    out.n_draft_accepted += usage.n_draft_accepted;
    out.n_draft_rejected += usage.n_draft_rejected;
    if (i % n != 0) continue;
    out.n_prompt += usage.n_prompt;
    out.n_cached += usage.n_cached;
  }
  return out;
}

void Generation::write_log(std::string_view finish) {
  json::object& log = reply_->log;
  const UsageTotal usage = total_usage();
  log["model"] = prepared_.model->name;
  log["id"] = response_id_;
  log["stream"] = prepared_.request.stream;
  log["choices"] = choices_.size();
  log["seed"] = prepared_.request.options.sampling.seed;
  log["prompt_tokens"] = n_prompt_tokens_;
  log["cached_tokens"] = usage.n_cached;
  log["completion_tokens"] = usage.n_completion;
  log["finish"] = finish;
  json::array notes(prepared_.request.notes.begin(), prepared_.request.notes.end());
  if (!notes.empty()) log["notes"] = std::move(notes);
  if (first_token_s_) log["first_token_seconds"] = *first_token_s_;
  if (client_.key && finish != kRejected) client_.key->count_tokens(n_prompt_tokens_, usage.n_completion);
}

}  // namespace zinc
