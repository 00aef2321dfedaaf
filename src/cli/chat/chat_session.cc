#include "cli/chat/chat_session.h"

#include <fmt/core.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <cstdlib>

#include "base/atomic_file.h"
#include "base/mapped_file.h"

namespace zinc {
namespace {

std::atomic<int> g_signal = 0;

// While an answer comes: Ctrl-C stops the answer, a wish to end the program stops it too, and what is typed ahead does
// not show up in the middle of it.
class AnswerWatch {
 public:
  AnswerWatch() {
    g_signal = 0;
    for (size_t i = 0; i < kSignals.size(); ++i) {
      struct sigaction action = {};
      action.sa_handler = [](int signal) { g_signal = signal; };
      ::sigaction(kSignals[i], &action, &previous_[i]);
    }
    if (::tcgetattr(STDIN_FILENO, &terminal_) != 0) return;
    termios quiet = terminal_;
    quiet.c_lflag &= ~static_cast<tcflag_t>(ECHO);
    is_quiet_ = ::tcsetattr(STDIN_FILENO, TCSADRAIN, &quiet) == 0;
  }
  ~AnswerWatch() {
    if (is_quiet_) ::tcsetattr(STDIN_FILENO, TCSADRAIN, &terminal_);
    for (size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &previous_[i], nullptr);
  }
  AnswerWatch(const AnswerWatch&) = delete;
  AnswerWatch& operator=(const AnswerWatch&) = delete;

 private:
  static constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP};
  std::array<struct sigaction, kSignals.size()> previous_;
  termios terminal_;
  bool is_quiet_ = false;
};

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

Status ChatSession::load_model(const std::string& name) {
  ModelOptions wanted = options_.model;
  wanted.path = name;
  ZINC_TRY(model, ChatModel::load(wanted, options_.context));
  model_ = std::move(model);
  options_.model.path = name;
  last_.reset();
  return check_settings();
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
  screen_.whisper(fmt::format("{} tokens, {:.1f} tok/s; context {} of {}", usage.n_completion,
                              rate(usage.n_completion - 1, outcome.timings.decode_s), n_used, context));
  if (outcome.reason == StopReason::max_tokens) {
    screen_.complain(
        fmt::format("the answer ended at the limit of {} tokens; /set max_tokens 0 lifts it", options_.max_tokens));
  } else if (outcome.reason == StopReason::context_full) {
    screen_.complain(
        too_long({ErrorCode::context_exceeded, fmt::format("the answer was cut at position {}", context)}).message);
  }
}

Status ChatSession::ask(const std::string& question) {
  ChatRequest request;
  request.messages = conversation_.messages_with(question);
  request.sampling = options_.sampling.settle(model_->advice());
  request.seed = request.sampling.seed;
  request.thinking = options_.thinking;
  request.max_tokens = options_.max_tokens;
  last_sampling_ = request.sampling;
  Message message;
  Result<Outcome> outcome = [&] {
    const AnswerWatch watch;
    screen_.begin_answer();
    const ChatHooks hooks{.delta =
                              [&](const Delta& delta) {
                                append_delta(message, delta);
                                screen_.show(delta);
                              },
                          .progress = [&](const PromptProgress& progress) { screen_.show(progress); },
                          .cancelled = [&] { return g_signal != 0 || !screen_.written().ok(); }};
    return model_->answer(std::move(request), hooks);
  }();
  if (!outcome.ok()) {
    const bool is_length = outcome.error().code == ErrorCode::context_exceeded;
    return is_length ? too_long(outcome.error()) : outcome.error();
  }
  screen_.end_answer();
  was_told_to_end_ = g_signal != 0 && g_signal != SIGINT;
  conversation_.turns.push_back({question, message.content, message.reasoning_content});
  last_ = std::move(outcome.value());
  remark(*last_);
  return screen_.written();
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
  return true;
}

Status ChatSession::save(const std::string& path) const {
  const json::object file{{"model", model_->name()}, {"messages", conversation_.messages()}};
  return write_file_atomically(expanded(path), to_pretty_json(file) + "\n");
}

Status ChatSession::load(const std::string& path) {
  ZINC_TRY(mapped, MappedFile::open(expanded(path)));
  const std::string_view text(reinterpret_cast<const char*>(mapped.bytes().data()), mapped.bytes().size());
  const Result<json::value> file = parse_json(text);
  if (!file.ok()) return fail(file.error().code, "{}: {}", path, file.error().message);
  Result<Conversation> read = Conversation::read(file.value());
  if (!read.ok()) return fail(read.error().code, "{}: {}", path, read.error().message);
  conversation_ = std::move(read.value());
  return ok_status();
}

Status ChatSession::check_settings() const {
  return validate(options_.sampling.settle(model_->advice()), model_->limits().n_vocab);
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
                "'{}' is no setting; there are temp, top_k, top_p, min_p, repeat_penalty, seed, max_tokens and think",
                name);
  }
  if (done.ok()) done = check_settings();
  if (!done.ok()) options_ = before;
  return done;
}

std::string ChatSession::settings_text() const {
  const SamplingParams p = options_.sampling.settle(model_->advice());
  const auto mark = [](const auto& option) { return option ? "" : "  (default)"; };
  const SamplingOptions& given = options_.sampling;
  return fmt::format(
      "temp            {}{}\ntop_k           {}{}\ntop_p           {}{}\nmin_p           {}{}\nrepeat_penalty  {}{}\n"
      "seed            {}\nmax_tokens      {}\nthink           {}\nDefaults are {}.",
      p.temperature, mark(given.temperature), p.top_k, mark(given.top_k), p.top_p, mark(given.top_p), p.min_p,
      mark(given.min_p), p.repeat_penalty, mark(given.repeat_penalty),
      given.seed ? std::to_string(*given.seed) : "a new one for each answer", options_.max_tokens,
      !options_.thinking   ? "as the model does"
      : *options_.thinking ? "on"
                           : "off",
      model_->advice().origin);
}

std::string ChatSession::stats_text() const {
  const EngineLimits& limits = model_->limits();
  std::string text = fmt::format(
      "model           {} on {}\nmemory          {:.1f} MB of weights, {:.1f} MB for the context\nturns    "
      "       {}",
      model_->name(), model_->backend(), static_cast<double>(limits.weight_bytes) / 1e6,
      static_cast<double>(limits.cache_bytes) / 1e6, conversation_.turns.size());
  if (!last_) return text + fmt::format("\ncontext         0 of {}", limits.context);
  const Usage& usage = last_->usage;
  const Timings& timings = last_->timings;
  text += fmt::format("\ncontext         {} of {}", std::min(usage.n_prompt + usage.n_completion, limits.context),
                      limits.context);
  text += fmt::format("\nlast prompt     {} tokens, {} of them known from before; the rest at {:.1f} tok/s",
                      usage.n_prompt, usage.n_cached, rate(usage.n_prompt - usage.n_cached, timings.prefill_s));
  text += fmt::format("\nlast answer     {} tokens at {:.1f} tok/s ({}); {}", usage.n_completion,
                      rate(usage.n_completion - 1, timings.decode_s), stop_reason_name(last_->reason),
                      sampling_text(last_sampling_));
  return text;
}

}  // namespace zinc
