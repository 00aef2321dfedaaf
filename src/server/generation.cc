#include "server/generation.h"

#include <algorithm>

#include "server/random_id.h"

namespace zinc {
namespace {

constexpr size_t kFewTokens = 200;  // with log-probabilities; written in a few milliseconds

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

void Generation::start(const ApiForm& form, PreparedRequest prepared, const Client& client, Doorbell& bell,
                       TextQueue& texts, std::shared_ptr<Reply> reply) {
  const std::shared_ptr<Generation> self(new Generation(form, std::move(prepared), client, texts, std::move(reply)));
  if (const std::optional<ApiError> error = self->submit_all(bell)) {
    self->is_over_ = true;
    self->cancel_rest();
    self->write_log("refused");
    return self->reply_->send(error_response(*error, form.error_form));
  }
  self->begin();
  self->reply_->on_gone([self] {
    self->is_over_ = true;
    self->cancel_rest();
    self->write_log(stop_reason_name(StopReason::cancelled));
  });
}

Generation::Generation(const ApiForm& form, PreparedRequest prepared, const Client& client, TextQueue& texts,
                       std::shared_ptr<Reply> reply)
    : form_(form), prepared_(std::move(prepared)), client_(client), texts_(texts), reply_(std::move(reply)) {
  const ChatRequest& asked = prepared_.asked;
  for (const auto& prompt : prepared_.prompts) n_prompt_tokens_ += static_cast<int>(prompt.size());
  head_ = {
      .id = random_id(),
      .model = prepared_.model->name,
      .created_s =
          std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count(),
      .n_prompt_tokens = n_prompt_tokens_,
      .include_usage = asked.include_usage,
      .with_logprobs = asked.n_top_logprobs >= 0,
      .echoed = std::move(prepared_.echoed)};
}

std::optional<ApiError> Generation::submit_all(Doorbell& bell) {
  const ChatRequest& asked = prepared_.asked;
  const size_t n = static_cast<size_t>(asked.n);
  tracks_.resize(prepared_.prompts.size() * n);
  for (size_t i = 0; i < tracks_.size(); ++i) {
    Track& track = tracks_[i];
    track.sink = std::make_shared<CollectingSink>(
        bell, weak_from_this(),
        CollectingSink::Wants{.tokens = asked.n_top_logprobs >= 0, .progress = asked.include_progress});
    if (asked.is_chat()) track.parser.emplace(*prepared_.model->tool_format, prepared_.parser);
    Request request;
    std::vector<TokenId>& prompt = prepared_.prompts[i / n];
    const bool is_last_use = i % n == n - 1;
    request.prompt = is_last_use ? std::move(prompt) : prompt;
    request.answer = prepared_.answer;
    request.answer.stream = i % n;
    request.boundaries = prepared_.boundaries;
    request.client = client_.name;
    request.cache_owner = client_.cache_owner;
    request.sink = track.sink;
    const Result<RequestId> id = prepared_.model->engine->submit(std::move(request));
    if (!id.ok()) return api_error(id.error());
    track.id = id.value();
    track.was_submitted = true;
  }
  return {};
}

void Generation::begin() {
  std::string out;
  if (prepared_.asked.stream) {
    reply_->start_stream();
    writer_ = form_.make_stream(std::move(head_));
    writer_->begin(out);
  }
  const size_t n = static_cast<size_t>(prepared_.asked.n);
  for (size_t i = 0; prepared_.asked.echo && i < tracks_.size(); ++i) {
    take_delta(i, ContentDelta{prepared_.prompt_texts[i / n]}, out);
  }
  if (writer_) reply_->write(out);
}

void Generation::sinks_have_news() {
  std::string out;
  for (size_t i = 0; i < tracks_.size() && !is_over_; ++i) {
    if (!tracks_[i].is_over) take_news(i, out);
  }
  if (is_over_) return;
  if (std::all_of(tracks_.begin(), tracks_.end(), [](const Track& track) { return track.is_over; })) {
    return finish(out);
  }
  if (writer_ && !out.empty()) reply_->write(out);  // a client too far behind has left: on_gone() was called
}

void Generation::take_news(size_t index, std::string& out) {
  Track& track = tracks_[index];
  CollectingSink::News news = track.sink->take();
  if (news.progress && writer_) writer_->progress(static_cast<int>(index), *news.progress, out);
  if (news.n_tokens > 0 && !first_token_s_) first_token_s_ = seconds_since(start_);
  track.choice.usage.n_completion += news.n_tokens;  // as far as is known; the outcome says it for good
  if (writer_ && prepared_.asked.include_progress) {
    writer_->counted(static_cast<int>(index), track.choice.usage.n_completion);
  }
  std::vector<ShownToken>& kept = writer_ ? track.new_tokens : track.choice.tokens;
  for (const AnswerToken& token : news.tokens) kept.push_back(shown(token));
  if (!track.parser) {
    if (!news.text.empty()) take_delta(index, ContentDelta{std::move(news.text)}, out);
  } else {
    take_deltas(index, track.parser->push(news.text), out);
  }
  if (news.outcome) end_track(index, *news.outcome, out);
}

void Generation::take_deltas(size_t index, std::vector<Delta> deltas, std::string& out) {
  Track& track = tracks_[index];
  for (Delta& delta : deltas) {
    if (track.is_cut) return;
    const bool ends_call = std::holds_alternative<CallEnd>(delta);
    take_delta(index, std::move(delta), out);
    if (!ends_call || prepared_.asked.parallel_tool_calls) continue;
    track.is_cut = true;
    prepared_.model->engine->cancel(track.id);
  }
}

// Texts of a stream are written and forgotten; all else is kept for the end of the answer.
void Generation::take_delta(size_t index, Delta delta, std::string& out) {
  Track& track = tracks_[index];
  CallStart* call = std::get_if<CallStart>(&delta);
  if (call && call->id.empty()) call->id = random_call_id();
  const bool is_text = std::holds_alternative<ContentDelta>(delta) || std::holds_alternative<ReasoningDelta>(delta);
  if (!writer_ || !is_text) append_delta(track.choice.message, delta);
  if (!writer_) return;
  const size_t n_before = out.size();
  writer_->delta(static_cast<int>(index), delta, track.new_tokens, out);
  if (out.size() > n_before) track.new_tokens.clear();
}

void Generation::end_track(size_t index, const Outcome& outcome, std::string& out) {
  Track& track = tracks_[index];
  track.is_over = true;
  Choice& choice = track.choice;
  choice.reason = outcome.reason;
  choice.stop_string = outcome.stop_string;
  choice.usage = outcome.usage;
  choice.timings = outcome.timings;
  if (outcome.reason == StopReason::failed) {
    const Error unknown{ErrorCode::device_lost, "the answer failed"};
    return fail(api_error(outcome.error.value_or(unknown)), out);
  }
  if (outcome.reason == StopReason::cancelled && !track.is_cut) {
    return fail(http_error(503, "the server stopped before the answer was complete"), out);
  }
  if (track.is_cut) choice.reason = StopReason::end_token;
  if (track.parser) take_deltas(index, track.parser->finish(), out);
  if (writer_) writer_->end_choice(static_cast<int>(index), choice, track.new_tokens, out);
}

void Generation::finish(std::string& out) {
  is_over_ = true;
  write_log(stop_reason_name(tracks_.front().choice.reason));
  if (writer_) {
    writer_->end(total_usage(), out);
    if (reply_->write(out)) reply_->end_stream();
    return;
  }
  send_whole();
}

// Log-probabilities of a long answer are megabytes of JSON: the text worker writes them, so that streams do not wait.
void Generation::send_whole() {
  const UsageTotal usage = total_usage();
  std::vector<Choice> choices;
  size_t n_tokens = 0;
  for (Track& track : tracks_) {
    n_tokens += track.choice.tokens.size();
    choices.push_back(std::move(track.choice));
  }
  if (n_tokens <= kFewTokens) return reply_->send({.body = to_json(form_.whole(head_, choices, usage))});
  texts_.add({.client = client_.name,
              .reply = reply_,
              .work = [self = shared_from_this(), choices = std::move(choices), usage]() -> std::function<void()> {
                const auto body =
                    std::make_shared<std::string>(to_json(self->form_.whole(self->head_, choices, usage)));
                return [self, body] { self->reply_->send({.body = std::move(*body)}); };
              }});
}

void Generation::fail(const ApiError& error, std::string& out) {
  is_over_ = true;
  cancel_rest();
  write_log("failed");
  if (!writer_) return reply_->send(error_response(error, form_.error_form));
  writer_->error(error, out);
  if (reply_->write(out)) reply_->end_stream();
}

void Generation::cancel_rest() {
  for (Track& track : tracks_) {
    if (track.was_submitted && !track.is_over) prepared_.model->engine->cancel(track.id);
    track.is_over = true;
  }
}

ShownToken Generation::shown(const AnswerToken& token) const {
  const Tokenizer& tokenizer = prepared_.model->tokenizer;
  static constexpr double kImpossible = -9999;  // OpenAI's word for what JSON cannot say
  const auto number = [](float logprob) { return std::max<double>(logprob, kImpossible); };
  ShownToken out{.text = std::string(tokenizer.bytes(token.id)), .logprob = number(token.logprob)};
  for (const TokenLogprob& other : token.top) {
    out.top.push_back({.text = std::string(tokenizer.bytes(other.token)), .logprob = number(other.logprob)});
  }
  return out;
}

UsageTotal Generation::total_usage() const {
  UsageTotal out;
  const size_t n = static_cast<size_t>(prepared_.asked.n);
  for (size_t i = 0; i < tracks_.size(); ++i) {
    const Usage& usage = tracks_[i].choice.usage;
    out.n_completion += usage.n_completion;
    out.n_reasoning += usage.n_reasoning;
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
  log["stream"] = prepared_.asked.stream;
  log["choices"] = tracks_.size();
  log["seed"] = prepared_.asked.sampling.seed;
  log["prompt_tokens"] = n_prompt_tokens_;
  log["cached_tokens"] = usage.n_cached;
  log["completion_tokens"] = usage.n_completion;
  log["finish"] = finish;
  if (first_token_s_) log["first_token_seconds"] = *first_token_s_;
}

}  // namespace zinc
