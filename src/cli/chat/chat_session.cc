#include "cli/chat/chat_session.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "base/atomic_file.h"
#include "base/mapped_file.h"
#include "base/pluralize.h"
#include "cli/chat/signal_watch.h"
#include "cli/model_file.h"

namespace zinc {
namespace {

double rate(int n, double seconds) { return seconds > 0 ? n / seconds : 0; }

void set_thinking(const ThinkingOptions& options, ChatRequest& request) {
  request.thinking = options.mode.is_on;
  request.reasoning_effort = options.mode.effort;
  request.thinking_budget = options.budget;
}

template <class T>
bool read_number(const std::string& text, T& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size();
}

template <class T>
Status set_number(std::optional<T>& target, const std::string& name, const std::string& value) {
  T number{};
  if (value == "default") {
    target.reset();
  } else if (read_number(value, number)) {
    target = number;
  } else {
    return fail(ErrorCode::invalid_input, "'{}' is not a valid value for {}; expected a number or 'default'", value,
                name);
  }
  return ok_status();
}

std::filesystem::path expanded(const std::string& path) {
  const char* const home = std::getenv("HOME");
  return path.starts_with("~/") && home ? std::filesystem::path(home) / path.substr(2) : std::filesystem::path(path);
}

}  // namespace

Status ChatSession::set_model(const std::string& name, const std::filesystem::path& file) {
  ModelOptions wanted = options_.model;
  wanted.path = name;
  ZINC_TRY(model, ChatModel::load(wanted, file, options_.context));
  model_ = std::move(model);
  return check_settings();
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
    return loaded;
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

Error ChatSession::context_full_error(const Error& error) const {
  const int context = model_->limits().context;
  const std::string more = context < model_->trained_context()
                               ? fmt::format(", or restart with -c {}", model_->trained_context())
                               : std::string();
  return fail(error.code, "the context is full: {}. /undo removes the last turn, /clear all turns{}", error.message,
              more);
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
  } else if (outcome.reason == StopReason::context_full) {
    screen_.print_warning(
        context_full_error({ErrorCode::context_exceeded, fmt::format("the answer was cut off at token {}", context)})
            .message);
  }
}

Status ChatSession::ask(const std::string& question) {
  ChatRequest request;
  request.messages = conversation_.messages_with(question);
  request.sampling = options_.sampling.resolve(recommended_sampling());
  request.seed = request.sampling.seed;
  set_thinking(options_.thinking, request);
  request.max_tokens = options_.max_tokens;
  last_sampling_ = request.sampling;
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
    return is_length ? context_full_error(outcome.error()) : outcome.error();
  }
  shutdown_requested_ = SignalWatch::last_signal() != 0 && SignalWatch::last_signal() != SIGINT;
  conversation_.turns.push_back({question, message.content, message.reasoning_content});
  last_ = std::move(outcome.value());
  print_summary(*last_);
  if (!screen_.written().ok()) return screen_.written();
  // In a script the next question must not follow an incomplete answer.
  const bool is_cut = SignalWatch::last_signal() != 0 && !screen_.kind().is_interactive;
  return is_cut ? Status(fail(ErrorCode::cancelled, "interrupted")) : ok_status();
}

Status ChatSession::retry() {
  if (conversation_.turns.empty()) return fail(ErrorCode::invalid_input, "no answer to retry yet");
  const Turn last = conversation_.turns.back();
  conversation_.turns.pop_back();
  Status asked = ask(last.question);
  if (!asked.ok()) conversation_.turns.push_back(last);
  return asked;
}

bool ChatSession::undo() {
  if (conversation_.turns.empty()) return false;
  conversation_.turns.pop_back();
  last_.reset();
  return true;
}

void ChatSession::clear() {
  conversation_.turns.clear();
  last_.reset();
}

Status ChatSession::save(const std::string& path) {
  const std::filesystem::path target = std::filesystem::absolute(expanded(path));
  std::error_code ignored;
  if (target != file_ && std::filesystem::exists(target, ignored)) {
    return fail(ErrorCode::invalid_input, "{}: already exists; choose another name or delete it first", path);
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
  Result<Conversation> read = Conversation::read(file.value());
  if (!read.ok()) return fail(read.error().code, "{}: {}", path, read.error().message);
  conversation_ = std::move(read.value());
  file_ = std::filesystem::absolute(expanded(path));
  last_.reset();
  return ok_status();
}

Status ChatSession::check_settings() const {
  return validate(options_.sampling.resolve(recommended_sampling()), model_->limits().n_vocab);
}

Status ChatSession::set(const std::string& name, const std::string& value) {
  const ChatOptions before = options_;
  SamplingOptions& sampling = options_.sampling;
  Status status = ok_status();
  if (name == "temp") {
    status = set_number(sampling.temperature, name, value);
  } else if (name == "top_k") {
    status = set_number(sampling.top_k, name, value);
  } else if (name == "top_p") {
    status = set_number(sampling.top_p, name, value);
  } else if (name == "min_p") {
    status = set_number(sampling.min_p, name, value);
  } else if (name == "repeat_penalty") {
    status = set_number(sampling.repeat_penalty, name, value);
  } else if (name == "presence_penalty") {
    status = set_number(sampling.presence_penalty, name, value);
  } else if (name == "seed") {
    status = set_number(sampling.seed, name, value);
  } else if (name == "max_tokens") {
    std::optional<int> n;
    status = set_number(n, name, value);
    if (status.ok() && n.value_or(0) < 0)
      status = fail(ErrorCode::invalid_input, "max_tokens is {}; expected 0 or more", *n);
    if (status.ok()) options_.max_tokens = n.value_or(0);
  } else if (name == "think") {
    status = set_thinking_mode(value, options_.thinking.mode);
  } else if (name == "think_budget") {
    std::optional<int> n;
    status = set_number(n, name, value);
    if (status.ok() && n.value_or(0) < 0)
      status = fail(ErrorCode::invalid_input, "think_budget is {}; expected 0 or more", *n);
    if (status.ok()) options_.thinking.budget = n.value_or(-1);
  } else {
    status = fail(ErrorCode::invalid_input,
                  "unknown setting '{}'; available: temp, top_k, top_p, min_p, repeat_penalty, presence_penalty, seed, "
                  "max_tokens, think and think_budget",
                  name);
  }
  if (status.ok()) status = check_settings();
  if (!status.ok()) options_ = before;
  return status;
}

std::string ChatSession::settings_text() const {
  const SamplingParams p = options_.sampling.resolve(recommended_sampling());
  const SamplingOptions& explicit_options = options_.sampling;
  std::string text;
  const auto add = [&](const char* name, const auto& value, const auto& option) {
    text += fmt::format("{:<18}{}{}\n", name, value, option ? "" : "  (default)");
  };
  add("temp", p.temperature, explicit_options.temperature);
  add("top_k", p.top_k, explicit_options.top_k);
  add("top_p", p.top_p, explicit_options.top_p);
  add("min_p", p.min_p, explicit_options.min_p);
  add("repeat_penalty", p.repeat_penalty, explicit_options.repeat_penalty);
  add("presence_penalty", p.presence_penalty, explicit_options.presence_penalty);
  text += fmt::format("{:<18}{}\n", "seed",
                      explicit_options.seed ? std::to_string(*explicit_options.seed) : "a new one for each answer");
  text += fmt::format("{:<18}{}\n", "max_tokens", options_.max_tokens);
  text += fmt::format("{:<18}{}\n", "think", thinking_mode_name(options_.thinking.mode));
  const int budget = options_.thinking.budget;
  text += fmt::format("{:<18}{}\n", "think_budget", budget < 0 ? "no limit" : std::to_string(budget));
  return text + fmt::format("Defaults: {}.", recommended_sampling().origin);
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
  ChatRequest request;
  request.messages = conversation_.messages();
  set_thinking(options_.thinking, request);
  return std::min(model_->count_tokens(std::move(request)), context);
}

std::string ChatSession::stats_text() const {
  const EngineLimits& limits = model_->limits();
  std::string text = fmt::format(
      "model           {} on {}\nmemory          {} bytes of weights, {} bytes of KV cache\nturns           {}",
      model_->name(), model_->backend(), limits.weight_bytes, limits.cache_bytes, conversation_.turns.size());
  text += fmt::format("\ncontext         {} of {}", context_used(), limits.context);
  if (!last_) return text;
  const Usage& usage = last_->usage;
  const Timings& timings = last_->timings;
  text += fmt::format("\nlast prompt     {} tokens, {} of them cached; the rest at {:.1f} tok/s", usage.n_prompt,
                      usage.n_cached, rate(usage.n_prompt - usage.n_cached, timings.prefill_s));
  text += fmt::format("\nlast answer     {} tokens at {:.1f} tok/s ({}); {}", usage.n_completion,
                      rate(usage.n_completion - 1, timings.decode_s), stop_reason_name(last_->reason),
                      sampling_text(last_sampling_));
  return text;
}

}  // namespace zinc
