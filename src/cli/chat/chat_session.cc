#include "cli/chat/chat_session.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "base/atomic_file.h"
#include "base/counted.h"
#include "base/mapped_file.h"
#include "cli/chat/signal_watch.h"
#include "cli/model_file.h"

namespace zinc {
namespace {

double rate(int n, double seconds) { return seconds > 0 ? n / seconds : 0; }

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
    return fail(ErrorCode::invalid_input, "'{}' is no value for {}; expected a number, or 'default'", value, name);
  }
  return ok_status();
}

std::filesystem::path expanded(const std::string& path) {
  const char* const home = std::getenv("HOME");
  return path.starts_with("~/") && home ? std::filesystem::path(home) / path.substr(2) : std::filesystem::path(path);
}

}  // namespace

Status ChatSession::put_model(const std::string& name, const std::filesystem::path& file) {
  ModelOptions wanted = options_.model;
  wanted.path = name;
  ZINC_TRY(model, ChatModel::load(wanted, file, options_.context));
  model_ = std::move(model);
  return check_settings();
}

Status ChatSession::load_model(const std::string& name) {
  std::optional<SignalWatch> watch;
  watch.emplace();
  const auto is_ended = [] { return SignalWatch::seen() != 0 && SignalWatch::seen() != SIGINT; };
  const Result<std::filesystem::path> file = model_file(name, [] { return SignalWatch::seen() != 0; });
  was_told_to_end_ = is_ended();
  if (!file.ok()) return file.error();
  const bool is_first = model_ == nullptr;
  if (!is_first) {  // what is no model is known before the one there is goes
    if (const Result<GgufFile> opened = GgufFile::open(file.value()); !opened.ok()) return opened.error();
  }
  if (is_first) watch.reset();  // nothing is lost yet: Ctrl-C may end the program as usual
  const std::string old_name = std::exchange(options_.model.path, name);
  model_.reset();
  Status loaded = put_model(name, file.value());
  if (watch && loaded.ok() && SignalWatch::seen() != 0) loaded = fail(ErrorCode::cancelled, "loading was stopped");
  was_told_to_end_ = watch && is_ended();
  if (loaded.ok() || is_first) {
    last_.reset();
    return loaded;
  }
  options_.model.path = old_name;
  model_.reset();
  ZINC_TRY(old_file, model_file(old_name, [] { return true; }));
  if (Status back = put_model(old_name, old_file); !back.ok()) {
    model_.reset();
    return fail(back.error().code, "{}; and the model before it cannot be loaded any more: {}", loaded.error().message,
                back.error().message);
  }
  return loaded;
}

Error ChatSession::too_long(const Error& error) const {
  const int context = model_->limits().context;
  const std::string more = context < model_->trained_context()
                               ? fmt::format(", or start with -c {}", model_->trained_context())
                               : std::string();
  return fail(error.code, "the context is full: {}. /undo takes back the last turn, /clear all of them{}",
              error.message, more);
}

void ChatSession::remark(const Outcome& outcome) {
  const Usage& usage = outcome.usage;
  const int context = model_->limits().context;
  const int n_used = std::min(usage.n_prompt + usage.n_completion, context);  // the last token needs no position
  if (outcome.reason == StopReason::cancelled) screen_.whisper("(stopped)");
  screen_.whisper(fmt::format("{}, {:.1f} tok/s; context {} of {}", counted(usage.n_completion, "token"),
                              rate(usage.n_completion - 1, outcome.timings.decode_s), n_used, context));
  if (outcome.reason == StopReason::max_tokens) {
    screen_.complain(fmt::format("the answer ended at the limit of {}; /set max_tokens 0 lifts it",
                                 counted(options_.max_tokens, "token")));
  } else if (outcome.reason == StopReason::context_full) {
    screen_.complain(
        too_long({ErrorCode::context_exceeded, fmt::format("the answer was cut at position {}", context)}).message);
  }
}

Status ChatSession::ask(const std::string& question) {
  ChatRequest request;
  request.messages = conversation_.messages_with(question);
  request.sampling = options_.sampling.settle(advice());
  request.seed = request.sampling.seed;
  request.thinking = options_.thinking;
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
                          .cancelled = [&] { return SignalWatch::seen() != 0 || !screen_.written().ok(); }};
    return model_->answer(std::move(request), hooks);
  }();
  screen_.end_answer();
  if (!outcome.ok()) {
    const bool is_length = outcome.error().code == ErrorCode::context_exceeded;
    return is_length ? too_long(outcome.error()) : outcome.error();
  }
  was_told_to_end_ = SignalWatch::seen() != 0 && SignalWatch::seen() != SIGINT;
  conversation_.turns.push_back({question, message.content, message.reasoning_content});
  last_ = std::move(outcome.value());
  remark(*last_);
  if (!screen_.written().ok()) return screen_.written();
  // With nobody there to ask something else, the next question must not go on from half an answer.
  const bool is_cut = SignalWatch::seen() != 0 && !screen_.kind().is_interactive;
  return is_cut ? Status(fail(ErrorCode::cancelled, "interrupted")) : ok_status();
}

Status ChatSession::retry() {
  if (conversation_.turns.empty()) return fail(ErrorCode::invalid_input, "there is no answer yet to try again");
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
    return fail(ErrorCode::invalid_input, "{}: is there already; take another name, or remove it first", path);
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
  return validate(options_.sampling.settle(advice()), model_->limits().n_vocab);
}

Status ChatSession::set(const std::string& name, const std::string& value) {
  const ChatOptions before = options_;
  SamplingOptions& sampling = options_.sampling;
  Status done = ok_status();
  if (name == "temp") {
    done = set_number(sampling.temperature, name, value);
  } else if (name == "top_k") {
    done = set_number(sampling.top_k, name, value);
  } else if (name == "top_p") {
    done = set_number(sampling.top_p, name, value);
  } else if (name == "min_p") {
    done = set_number(sampling.min_p, name, value);
  } else if (name == "repeat_penalty") {
    done = set_number(sampling.repeat_penalty, name, value);
  } else if (name == "presence_penalty") {
    done = set_number(sampling.presence_penalty, name, value);
  } else if (name == "seed") {
    done = set_number(sampling.seed, name, value);
  } else if (name == "max_tokens") {
    std::optional<int> n;
    done = set_number(n, name, value);
    if (done.ok() && n.value_or(0) < 0)
      done = fail(ErrorCode::invalid_input, "max_tokens is {}; expected 0 or more", *n);
    if (done.ok()) options_.max_tokens = n.value_or(0);
  } else if (name == "think" && (value == "on" || value == "off" || value == "default")) {
    options_.thinking = value == "default" ? std::nullopt : std::optional(value == "on");
  } else if (name == "think") {
    done = fail(ErrorCode::invalid_input, "'{}' is no value for think; expected on, off or default", value);
  } else {
    done = fail(ErrorCode::invalid_input,
                "'{}' is no setting; there are temp, top_k, top_p, min_p, repeat_penalty, presence_penalty, seed, "
                "max_tokens and think",
                name);
  }
  if (done.ok()) done = check_settings();
  if (!done.ok()) options_ = before;
  return done;
}

std::string ChatSession::settings_text() const {
  const SamplingParams p = options_.sampling.settle(advice());
  const SamplingOptions& given = options_.sampling;
  std::string text;
  const auto add = [&](const char* name, const auto& value, const auto& option) {
    text += fmt::format("{:<18}{}{}\n", name, value, option ? "" : "  (default)");
  };
  add("temp", p.temperature, given.temperature);
  add("top_k", p.top_k, given.top_k);
  add("top_p", p.top_p, given.top_p);
  add("min_p", p.min_p, given.min_p);
  add("repeat_penalty", p.repeat_penalty, given.repeat_penalty);
  add("presence_penalty", p.presence_penalty, given.presence_penalty);
  text += fmt::format("{:<18}{}\n", "seed", given.seed ? std::to_string(*given.seed) : "a new one for each answer");
  text += fmt::format("{:<18}{}\n", "max_tokens", options_.max_tokens);
  const char* const think = !options_.thinking ? "as the model does" : *options_.thinking ? "on" : "off";
  text += fmt::format("{:<18}{}\n", "think", think);
  return text + fmt::format("Defaults are {}.", advice().origin);
}

std::string ChatSession::sampling_line() const {
  SamplingParams params = options_.sampling.settle(advice());
  std::string text = sampling_text(params);
  if (!options_.sampling.seed) text = text.substr(0, text.rfind(", seed"));  // each answer draws its own
  const std::string by = options_.sampling.takes_advice() ? fmt::format(" ({})", advice().origin) : "";
  return fmt::format("Answers are drawn with {}{}; /set changes that.", text, by);
}

// Positions that what was said takes.
int ChatSession::context_used() const {
  if (conversation_.turns.empty()) return 0;
  const int context = model_->limits().context;
  if (last_) return std::min(last_->usage.n_prompt + last_->usage.n_completion, context);
  ChatRequest request;
  request.messages = conversation_.messages();
  request.thinking = options_.thinking;
  return std::min(model_->count_tokens(std::move(request)), context);
}

std::string ChatSession::stats_text() const {
  const EngineLimits& limits = model_->limits();
  std::string text = fmt::format(
      "model           {} on {}\nmemory          {} bytes of weights, {} for the context\nturns           {}",
      model_->name(), model_->backend(), limits.weight_bytes, limits.cache_bytes, conversation_.turns.size());
  text += fmt::format("\ncontext         {} of {}", context_used(), limits.context);
  if (!last_) return text;
  const Usage& usage = last_->usage;
  const Timings& timings = last_->timings;
  text += fmt::format("\nlast prompt     {} tokens, {} of them known from before; the rest at {:.1f} tok/s",
                      usage.n_prompt, usage.n_cached, rate(usage.n_prompt - usage.n_cached, timings.prefill_s));
  text += fmt::format("\nlast answer     {} tokens at {:.1f} tok/s ({}); {}", usage.n_completion,
                      rate(usage.n_completion - 1, timings.decode_s), stop_reason_name(last_->reason),
                      sampling_text(last_sampling_));
  return text;
}

}  // namespace zinc
