#include "cli/chat/chat_session.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>

#include "base/atomic_file.h"
#include "base/format_memory.h"
#include "base/mapped_file.h"
#include "base/pluralize.h"
#include "cli/chat/page_export.h"
#include "cli/chat/signal_watch.h"
#include "cli/model_file.h"
#include "hub/source.h"

namespace zinc {
namespace {

double rate(int n, double seconds) { return seconds > 0 ? n / seconds : 0; }

std::filesystem::path expanded(const std::string& path) {
  const char* const home = std::getenv("HOME");
  return path.starts_with("~/") && home ? std::filesystem::path(home) / path.substr(2) : std::filesystem::path(path);
}

Result<Conversation> read_conversation(const json::value& file) {
  if (!is_page_export(file)) return Conversation::read(file);
  ZINC_TRY(messages, read_page_export(file));
  return Conversation::read(messages);
}

}  // namespace

Status ChatSession::set_model(const std::string& name, const std::filesystem::path& file) {
  ModelOptions wanted = options_.model;
  wanted.path = name;
  ZINC_TRY(model, LocalModel::load(wanted, file, {.context = options_.context, .speculation = options_.speculation}));
  model_ = std::move(model);
  return check_settings();
}

std::string ChatSession::model_reference() const {
  const std::string& typed = options_.model.path;
  std::error_code unreadable;
  const bool is_file = typed.ends_with(".gguf") || std::filesystem::is_regular_file(typed, unreadable);
  if (is_file && !has_source_prefix(typed)) return std::filesystem::absolute(typed, unreadable).string();
  return typed.empty() ? model_->name() : typed;
}

void ChatSession::keep() {
  if (!store_ || (!opened_ && conversation_.is_empty())) return;
  const auto save = [this]() -> Status {
    if (!opened_) {
      ZINC_TRY(created, store_->create());
      opened_ = std::move(created);
    }
    return opened_->save({model_reference(), given_settings(options_), conversation_});
  };
  if (const Status saved = save(); !saved.ok()) {
    screen_.print_warning("this conversation is not kept: " + saved.error().message);
    store_.reset();
    opened_.reset();
  }
}

void ChatSession::resume(OpenConversation opened, Conversation conversation) {
  opened_ = std::move(opened);
  conversation_ = std::move(conversation);
  last_.reset();
}

std::optional<int> ChatSession::kept_as() const { return opened_ ? std::optional(opened_->id()) : std::nullopt; }

void ChatSession::warn_of_ignored_thinking() {
  const std::string text = ignored_thinking_text(options_.thinking, model_->thinking(), model_->name());
  if (!text.empty()) screen_.print_warning(text);
}

Status ChatSession::load_model(const std::string& name) {
  std::optional<SignalWatch> watch;
  watch.emplace();
  const auto is_ended = [] { return SignalWatch::last_signal() != 0 && SignalWatch::last_signal() != SIGINT; };
  const Result<std::filesystem::path> file = model_file(name, [] { return SignalWatch::last_signal() != 0; });
  shutdown_requested_ = is_ended();
  if (!file.ok()) return file.error();
  const bool is_first = model_ == nullptr;
  if (!is_first) {  // an invalid file is rejected before the current model is unloaded
    if (const Result<GgufFile> opened = GgufFile::open(file.value()); !opened.ok()) return opened.error();
  }
  if (is_first) watch.reset();  // no chat to lose yet: Ctrl-C may end the program
  const std::string old_name = std::exchange(options_.model.path, name);
  model_.reset();
  Status loaded = set_model(name, file.value());
  if (watch && loaded.ok() && SignalWatch::last_signal() != 0)
    loaded = fail(ErrorCode::cancelled, "loading was interrupted");
  shutdown_requested_ = watch && is_ended();
  if (loaded.ok() || is_first) {
    last_.reset();
    if (!loaded.ok()) return loaded;
    warn_of_ignored_thinking();
    keep();
    return ok_status();
  }
  options_.model.path = old_name;
  model_.reset();
  ZINC_TRY(old_file, model_file(old_name, [] { return true; }));
  if (Status reloaded = set_model(old_name, old_file); !reloaded.ok()) {
    model_.reset();
    return fail(reloaded.error().code, "{}; reloading the previous model also failed: {}", loaded.error().message,
                reloaded.error().message);
  }
  return loaded;
}

Error ChatSession::context_full_error(std::string_view what) const {
  const int64_t context = model_->limits().context, trained = model_->trained_context();
  const int64_t larger = std::min(context * 2, trained);
  const std::string continued =
      opened_ ? fmt::format("; `zinc chat --continue {} -c {}` continues with a larger context", opened_->id(), larger)
              : fmt::format("; `zinc chat -c {}` has a larger context", larger);
  return fail(ErrorCode::context_exceeded,
              "the context of {} tokens is full: {}. /drop leaves the oldest messages out of the prompt, /undo removes "
              "the last turn, /clear begins a new conversation{}",
              context, what, context < trained ? continued : "");
}

void ChatSession::print_summary(const Outcome& outcome) {
  const Usage& usage = outcome.usage;
  const int context = model_->limits().context;
  const int n_used = std::min(usage.n_prompt + usage.n_completion, context);  // the last token needs no position
  if (outcome.reason == StopReason::cancelled) screen_.print_status("(stopped)");
  screen_.print_status(fmt::format("{}, {:.1f} tok/s; context {} of {}", pluralize(usage.n_completion, "token"),
                                   rate(usage.n_completion - 1, outcome.timings.decode_s), n_used, context));
  if (outcome.reason == StopReason::max_tokens) {
    screen_.print_warning(fmt::format("the answer was cut off at the limit of {}; /set max_tokens 0 removes the limit",
                                      pluralize(options_.max_tokens, "token")));
  } else if (outcome.reason == StopReason::context_full && n_used < context) {  // of the answer's own RoPE scaling
    screen_.print_warning(
        fmt::format("the answer was cut off at {} tokens, the end of the context that it began with; the next answer "
                    "has a larger one",
                    n_used - 1));
  } else if (outcome.reason == StopReason::context_full) {
    screen_.print_warning(context_full_error("the answer was cut off").message);
  }
}

Status ChatSession::ask(const std::string& question) {
  conversation_.unanswered = question;
  keep();
  return answer(question);
}

Status ChatSession::answer(const std::string& question) {
  ChatRequest request;
  request.messages = conversation_.prompt(question);
  request.options.sampling = options_.sampling.resolve(recommended_sampling());
  request.seed = request.options.sampling.seed;
  set_thinking(options_.thinking, request);
  request.options.max_tokens = options_.max_tokens;
  last_sampling_ = request.options.sampling;
  Message message;
  Result<Outcome> outcome = [&] {
    const SignalWatch watch;
    screen_.begin_answer();
    const ChatHooks hooks{.delta =
                              [&](const Delta& delta) {
                                append_delta(message, delta);
                                screen_.show(delta);
                              },
                          .progress = [&](const PromptProgress& progress) { screen_.show(progress); },
                          .cancelled = [&] { return SignalWatch::last_signal() != 0 || !screen_.written().ok(); }};
    return model_->answer(std::move(request), hooks);
  }();
  screen_.end_answer();
  if (!outcome.ok()) {
    const bool is_length = outcome.error().code == ErrorCode::context_exceeded;
    const bool is_alone = conversation_.n_left_out == conversation_.turns.size();
    const char* const what = is_alone ? "the message alone does not fit" : "the conversation no longer fits";
    return is_length ? context_full_error(what) : outcome.error();
  }
  shutdown_requested_ = SignalWatch::last_signal() != 0 && SignalWatch::last_signal() != SIGINT;
  conversation_.unanswered.clear();
  conversation_.turns.push_back({question, message.content, message.reasoning_content});
  keep();
  last_ = std::move(outcome.value());
  print_summary(*last_);
  if (!screen_.written().ok()) return screen_.written();
  // In a script the next question must not follow an incomplete answer.
  const bool is_cut = SignalWatch::last_signal() != 0 && !screen_.kind().is_interactive;
  return is_cut ? Status(fail(ErrorCode::cancelled, "interrupted")) : ok_status();
}

Status ChatSession::retry() {
  if (const std::string question = conversation_.unanswered; !question.empty()) return ask(question);
  if (conversation_.turns.empty()) return fail(ErrorCode::invalid_input, "no answer to retry yet");
  const Conversation before = conversation_;  // until the new answer is complete
  conversation_.turns.pop_back();
  conversation_.n_left_out = std::min(before.n_left_out, conversation_.turns.size());
  Status answered = answer(before.turns.back().question);
  if (answered.ok() && !shutdown_requested_) return answered;
  conversation_ = before;
  keep();
  return answered;
}

std::string ChatSession::undo() {
  std::string question = std::exchange(conversation_.unanswered, {});
  if (question.empty() && !conversation_.turns.empty()) {
    question = conversation_.turns.back().question;
    conversation_.turns.pop_back();
    conversation_.n_left_out = std::min(conversation_.n_left_out, conversation_.turns.size());
    last_.reset();
  }
  keep();
  return question;
}

void ChatSession::clear() {
  conversation_ = {.system = conversation_.system};
  file_.clear();  // of the old one: /save must not replace it
  opened_.reset();
  last_.reset();
}

void ChatSession::set_system(std::string text) {
  conversation_.system = std::move(text);
  keep();
}

int ChatSession::count_tokens(size_t n_left_out, std::string_view question) const {
  Conversation sent = conversation_;
  sent.n_left_out = n_left_out;
  ChatRequest request;
  request.messages = sent.prompt(question);
  set_thinking(options_.thinking, request);
  return model_->count_tokens(std::move(request));
}

Status ChatSession::leave_out_oldest() {
  const std::string question = conversation_.unanswered;
  const int target = model_->limits().context / 2;  // the other half is for the answers to come
  size_t low = conversation_.n_left_out, high = conversation_.turns.size();
  if (low == high) return fail(ErrorCode::invalid_input, "there are no earlier messages to leave out");
  while (low < high) {  // binary search: counting renders the whole prompt
    const size_t middle = (low + high) / 2;
    count_tokens(middle, question) <= target ? high = middle : low = middle + 1;
  }
  if (low == conversation_.n_left_out && question.empty()) {
    return fail(ErrorCode::invalid_input, "the conversation fills less than half of the context; nothing is left out");
  }
  if (count_tokens(low, question) >= model_->limits().context)
    return context_full_error("the message alone does not fit");
  conversation_.n_left_out = low;
  last_.reset();
  keep();
  screen_.print_status(
      fmt::format("{} left out of the prompt; the conversation keeps them", pluralize(low, "oldest turn")));
  return question.empty() ? ok_status() : ask(question);
}

Status ChatSession::save(const std::string& path, Overwrite overwrite) {
  const std::filesystem::path target = std::filesystem::absolute(expanded(path));
  std::error_code ignored;
  if (overwrite == Overwrite::no && target != file_ && std::filesystem::exists(target, ignored)) {
    return fail(ErrorCode::invalid_input, "{0}: already exists; /save! {0} replaces it", path);
  }
  const json::object file{{"model", model_->name()}, {"messages", conversation_.messages()}};
  ZINC_TRY(written, write_file_atomically(target, to_pretty_json(file) + "\n"));
  file_ = target;
  return ok_status();
}

Status ChatSession::load(const std::string& path) {
  ZINC_TRY(mapped, MappedFile::open(expanded(path)));
  const std::string_view text(reinterpret_cast<const char*>(mapped.bytes().data()), mapped.bytes().size());
  const Result<json::value> file = parse_json(text);
  if (!file.ok()) return fail(file.error().code, "{}: {}", path, file.error().message);
  Result<Conversation> read = read_conversation(file.value());
  if (!read.ok()) return fail(read.error().code, "{}: {}", path, read.error().message);
  clear();  // what was loaded is kept as another conversation
  conversation_ = std::move(read.value());
  if (!is_page_export(file.value())) file_ = std::filesystem::absolute(expanded(path));  // else /save would replace it
  keep();
  return ok_status();
}

void ChatSession::show_last_turns() {
  constexpr size_t kShown = 2;
  const std::vector<Turn>& turns = conversation_.turns;
  const size_t first = turns.size() - std::min(turns.size(), kShown);
  if (first > 0) screen_.print_status(fmt::format("({} before)", pluralize(first, "turn")));
  for (size_t i = first; i < turns.size(); ++i) screen_.show_turn(turns[i].question, turns[i].answer);
  if (conversation_.unanswered.empty()) return;
  screen_.print_status(
      fmt::format("the last question has no answer; /retry asks it again: {}", conversation_.unanswered));
}

Status ChatSession::check_settings() const {
  return validate(options_.sampling.resolve(recommended_sampling()), model_->limits().n_vocab);
}

Status ChatSession::set(const std::string& name, const std::string& value) {
  const ChatOptions before = options_;
  Status status = set_chat_setting(name, value, options_);
  if (status.ok()) status = check_settings();
  if (!status.ok()) {
    options_ = before;
    return status;
  }
  if (thinking_mode_name(before.thinking.mode) != thinking_mode_name(options_.thinking.mode))
    warn_of_ignored_thinking();
  keep();
  return ok_status();
}

std::string ChatSession::settings_text() const {
  const SamplingParams sampling = options_.sampling.resolve(recommended_sampling());
  return chat_settings_text(options_, sampling) + fmt::format("Sampling defaults: {}.", recommended_sampling().origin);
}

std::string ChatSession::sampling_line() const {
  SamplingParams params = options_.sampling.resolve(recommended_sampling());
  std::string text = sampling_text(params);
  if (!options_.sampling.seed) text = text.substr(0, text.rfind(", seed"));  // each answer has its own
  const std::string by =
      options_.sampling.uses_recommended() ? fmt::format(" ({})", recommended_sampling().origin) : "";
  return fmt::format("Sampling: {}{}; /set changes it.", text, by);
}

// Tokens that the conversation takes.
int ChatSession::context_used() const {
  if (conversation_.turns.empty()) return 0;
  const int context = model_->limits().context;
  if (last_) return std::min(last_->usage.n_prompt + last_->usage.n_completion, context);
  return std::min(count_tokens(conversation_.n_left_out, ""), context);
}

std::string ChatSession::stats_text() const {
  const EngineLimits& limits = model_->limits();
  std::string text =
      fmt::format("model           {} on {}\nmemory          {} of weights, {} of KV cache\nturns           {}",
                  model_->name(), model_->instance().backend_name(), format_memory(limits.weight_bytes),
                  format_memory(limits.cache_bytes), conversation_.turns.size());
  if (conversation_.n_left_out > 0)
    text += fmt::format(", the oldest {} left out of the prompt", conversation_.n_left_out);
  text += fmt::format("\ncontext         {} of {}", context_used(), pluralize(limits.context, "token"));
  if (opened_)
    text += fmt::format("\nkept as         {}; `zinc chat --continue {}` continues it", opened_->id(), opened_->id());
  if (!last_) return text;
  const Usage& usage = last_->usage;
  const Timings& timings = last_->timings;
  text += fmt::format("\nlast prompt     {}, {} of them cached; the rest at {:.1f} tok/s",
                      pluralize(usage.n_prompt, "token"), usage.n_cached,
                      rate(usage.n_prompt - usage.n_cached, timings.prefill_s));
  text += fmt::format("\nlast answer     {} at {:.1f} tok/s ({}); {}", pluralize(usage.n_completion, "token"),
                      rate(usage.n_completion - 1, timings.decode_s), stop_reason_name(last_->reason),
                      sampling_text(last_sampling_));
  return text;
}

}  // namespace zinc
