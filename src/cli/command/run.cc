// `zinc run [MODEL] [PROMPT]`: one question, one answer. The answer streams to standard output, the figures to
// standard error.
#include <fmt/core.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>

#include "base/counted.h"
#include "base/json.h"
#include "base/mapped_file.h"
#include "cli/command.h"
#include "cli/model_file.h"
#include "cli/model_options.h"
#include "cli/number_between.h"
#include "cli/output.h"
#include "cli/sampling_options.h"
#include "cli/terminal_text.h"
#include "constrain/gbnf.h"
#include "constrain/json_schema.h"
#include "engine/chat_prompt.h"
#include "engine/generator.h"

namespace zinc {
namespace {

struct Options {
  ModelOptions model;
  std::vector<std::string> positionals;  // [MODEL] [PROMPT]
  std::string prompt;
  std::string system;
  bool raw = false;
  bool json = false;
  int max_tokens = 512;
  int context = 0;
  std::vector<std::string> stop;
  std::string grammar, json_schema;  // files; the answer is a text of it
  std::optional<bool> thinking;      // unset: what the model does by itself
  SamplingOptions sampling;
};

std::atomic<bool> g_interrupted = false;

constexpr const char* kEmptyPrompt = "the prompt is empty; give a question as an argument or on standard input";
constexpr size_t kMaxInputBytes = size_t{64} << 20;  // more than any model's context holds

Result<std::string> read_input() {
  std::string text;
  std::array<char, 1 << 16> block;
  while (const size_t n = std::fread(block.data(), 1, block.size(), stdin)) {
    text.append(block.data(), n);
    if (text.size() > kMaxInputBytes) {
      return fail(ErrorCode::invalid_input, "the prompt on standard input is longer than {} bytes", kMaxInputBytes);
    }
  }
  if (std::ferror(stdin)) {
    return fail(ErrorCode::io, "the prompt could not be read from standard input: {}", std::strerror(errno));
  }
  return text;
}

// What `echo` or an editor put at the end is not part of the question.
void drop_last_newline(std::string& text) {
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
}

Status check_words(const Options& options) {
  const std::vector<std::string>& words = options.positionals;
  if (words.size() > 2) {
    return fail(ErrorCode::invalid_input,
                "{} words where a model and a prompt were expected; put the question in quotes: "
                "zinc run [MODEL] 'PROMPT'",
                words.size());
  }
  if (!words.empty() && words.back().empty() && !options.raw) return fail(ErrorCode::invalid_input, kEmptyPrompt);
  return options.sampling.check();
}

// One word may be either: it is the model if it names one, else the prompt. Standard input is the prompt where none
// is given and it is not a terminal.
Status sort_positionals(Options& options) {
  std::vector<std::string>& words = options.positionals;
  std::optional<std::string> prompt;
  if (words.size() == 2) {
    options.model.path = words[0];
    prompt = words[1];
  } else if (words.size() == 1 && is_model_name(words[0])) {
    options.model.path = words[0];
  } else if (words.size() == 1) {
    prompt = words[0];
  }
  if (!prompt && ::isatty(STDIN_FILENO)) {
    return fail(ErrorCode::invalid_input,
                "no prompt: give it as an argument, zinc run [MODEL] 'PROMPT', or on standard input");
  }
  if (prompt) {
    options.prompt = std::move(*prompt);
  } else {
    ZINC_TRY(text, read_input());
    options.prompt = std::move(text);
    if (!options.raw) drop_last_newline(options.prompt);
  }
  if (options.prompt.empty() && !options.raw) return fail(ErrorCode::invalid_input, kEmptyPrompt);
  return ok_status();
}

Result<std::optional<Grammar>> read_form(const Options& options) {
  const bool is_schema = !options.json_schema.empty();
  const std::string& path = is_schema ? options.json_schema : options.grammar;
  if (path.empty()) return std::optional<Grammar>();
  ZINC_TRY(file, MappedFile::open(path));
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  const auto in_file = [&](const Error& error) { return fail(error.code, "{}: {}", path, error.message); };
  Result<json::value> schema = is_schema ? parse_json(text) : json::value();
  if (!schema.ok()) return in_file(schema.error());
  Result<Grammar> grammar = is_schema ? json_schema_grammar(schema.value()) : parse_gbnf(text);
  if (!grammar.ok()) return in_file(grammar.error());
  return std::optional(std::move(grammar.value()));
}

struct Prompt {
  std::vector<TokenId> tokens;
  const ToolFormat* format = nullptr;  // nullptr: it is no conversation
  bool opens_thought = false;
};

Result<Prompt> make_prompt(const Options& options, const ModelInstance& model, const Tokenizer& tokenizer) {
  Prompt out;
  if (options.raw) {
    tokenizer.encode(options.prompt, {.add_special = true, .parse_special = false}, out.tokens);
    return out;
  }
  ZINC_TRY(chat, ChatPrompt::load(model.file(), tokenizer));
  json::array messages;
  if (!options.system.empty()) messages.push_back({{"role", "system"}, {"content", options.system}});
  messages.push_back({{"role", "user"}, {"content", options.prompt}});
  ChatRequestData request;
  request.messages = std::move(messages);
  if (options.thinking) request.kwargs["enable_thinking"] = *options.thinking;
  ZINC_TRY(prompt, chat.render(std::move(request)));
  out.tokens = chat.encode(prompt);
  out.format = &detect_tool_format(chat.chat_template().source(), model.model().architecture->gguf_name);
  out.opens_thought = prompt_opens_reasoning(*out.format, prompt.text());
  return out;
}

Result<AnswerForm> make_form(Grammar grammar, const Options& options, const Prompt& prompt,
                             const Tokenizer& tokenizer) {
  AnswerForm form{.constraint = std::make_shared<Constraint>(std::move(grammar), tokenizer,
                                                             std::make_shared<const TokenTree>(tokenizer))};
  const AnswerParts parts{.opens_thought = prompt.opens_thought, .may_think = options.thinking.value_or(true)};
  if (prompt.format) {
    ZINC_TRY(placed, place_form(*prompt.format, tokenizer, parts, form));
  }
  return form;
}

std::string figures_of(const Generation& made, const SamplingParams& sampling, std::string_view origin) {
  const auto rate = [](size_t n, double seconds) { return seconds > 0 ? static_cast<double>(n) / seconds : 0.0; };
  return fmt::format(
      "prompt {}, {:.1f} tok/s; generated {}, {:.1f} tok/s ({}); {}{}", counted(made.n_prompt_tokens, "token"),
      rate(static_cast<size_t>(made.n_prompt_tokens), made.prompt_s), counted(made.tokens.size(), "token"),
      rate(static_cast<size_t>(made.n_decode_steps), made.decode_s), stop_reason_name(made.reason),
      sampling_text(sampling), origin.empty() ? "" : fmt::format(" ({})", origin));
}

// What cut the answer short, and the option that allows more; empty: it ended by itself.
std::string cut_text(const Options& options, StopReason reason, int context) {
  if (reason == StopReason::max_tokens) {
    return fmt::format("zinc: the answer ended at the limit of {}; -n allows more (0: until the context is full)",
                       counted(options.max_tokens, "token"));
  }
  if (reason != StopReason::context_full) return "";
  return fmt::format("zinc: the answer ended where the context of {} positions is full; -c allows more", context);
}

std::string report_of(const Options& options, const SamplingParams& sampling, std::string_view origin,
                      const Generation& made, const std::string& text) {
  json::object report;
  report["model"] = options.model.path;
  report["text"] = text;
  report["finish_reason"] = stop_reason_name(made.reason);
  report["seed"] = sampling.seed;
  report["sampling"] = sampling_json(sampling);
  report["sampling_origin"] = options.sampling.takes_advice() ? json::value(origin) : json::value();
  report["prompt_tokens"] = made.n_prompt_tokens;
  report["prompt_seconds"] = made.prompt_s;
  report["generated_tokens"] = made.tokens.size();
  report["generated_seconds"] = made.decode_s;
  report["tokens"] = json::array(made.tokens.begin(), made.tokens.end());
  return to_json(report) + "\n";
}

// Ctrl-C ends the answer, not the program: what was made so far is kept and the figures are printed. A second one,
// while a long step still runs, ends the program.
class InterruptWatch {
 public:
  InterruptWatch() {
    g_interrupted = false;
    previous_ = std::signal(SIGINT, [](int) {
      g_interrupted = true;
      std::signal(SIGINT, SIG_DFL);
    });
  }
  ~InterruptWatch() { std::signal(SIGINT, previous_); }
  InterruptWatch(const InterruptWatch&) = delete;
  InterruptWatch& operator=(const InterruptWatch&) = delete;

 private:
  void (*previous_)(int);
};

// Streams the answer or keeps it for the report.
class AnswerSink {
 public:
  explicit AnswerSink(bool keeps) : keeps_(keeps), is_terminal_(::isatty(STDOUT_FILENO)) {}
  void take(std::string_view piece) {
    if (keeps_) {
      text_ += piece;
    } else if (written_.ok()) {
      written_ = is_terminal_ ? write_output(terminal_text(piece)) : write_output(piece);
    }
  }
  const std::string& text() const { return text_; }
  const Status& written() const { return written_; }

 private:
  bool keeps_, is_terminal_;
  std::string text_;
  Status written_ = ok_status();
};

Status answer(const Options& options) {
  ZINC_TRY(grammar, read_form(options));
  ZINC_TRY(model, load_model(options.model));
  ZINC_TRY(tokenizer, Tokenizer::load(model.file()));
  const ModelConfig& config = model.model().config;
  const SamplingAdvice advice = sampling_advice(model.file(), options.thinking);
  const SamplingParams sampling = options.sampling.settle(advice);
  if (Status valid = validate(sampling, static_cast<int32_t>(config.vocab_size)); !valid.ok()) return valid;
  ZINC_TRY(prompt, make_prompt(options, model, tokenizer));
  if (options.context > config.max_context) {
    note(fmt::format("zinc: the model was trained for {} positions, -c asks for {}", config.max_context,
                     options.context));
  }
  ZINC_TRY(sequence, Sequence::create(model, {.context = options.context}));
  AnswerSink sink(options.json);
  const InterruptWatch watch;
  const GenerateHooks hooks{.text = [&](std::string_view piece) { sink.take(piece); },
                            .cancelled = [&] { return g_interrupted.load() || !sink.written().ok(); }};
  AnswerOptions how{.sampling = sampling, .max_tokens = options.max_tokens, .stop = options.stop};
  if (grammar) {
    ZINC_TRY(form, make_form(std::move(*grammar), options, prompt, tokenizer));
    how.form = std::move(form);
  }
  const Result<Generation> made = generate(sequence, tokenizer, prompt.tokens, how, hooks);
  if (!made.ok()) return made.error();
  if (!sink.written().ok()) return sink.written();
  Status written =
      write_output(options.json ? report_of(options, sampling, advice.origin, made.value(), sink.text()) : "\n");
  if (!options.json) {
    note(device_text(options.model, model));
    note(figures_of(made.value(), sampling, options.sampling.takes_advice() ? advice.origin : ""));
    const std::string cut = cut_text(options, made.value().reason, sequence.context());
    if (!cut.empty()) note(cut);
  }
  if (written.ok() && g_interrupted) return fail(ErrorCode::cancelled, "interrupted");
  return written;
}

Status run(Options& options) {
  if (Status sorted = sort_positionals(options); !sorted.ok()) return sorted;
  ZINC_TRY(file, model_file(options.model.path));
  options.model.path = file.string();
  return answer(options);
}

std::function<Status()> declare(CLI::App& app) {
  auto options = std::make_shared<Options>();
  app.add_option("model_and_prompt", options->positionals,
                 "a GGUF file, a name `zinc list` shows or a source like hf:ORG/REPO (else the default "
                 "model), and the question (else standard input)")
      ->option_text("[MODEL] [PROMPT]");
  app.add_option("--system", options->system, "the system message");
  app.add_flag("--raw", options->raw, "continue the prompt as it is, without the chat template");
  app.add_option("-n,--max-tokens", options->max_tokens, "stop after so many tokens (0: when the context is full)")
      ->check(number_between(0, 1 << 30))
      ->capture_default_str();
  app.add_option("-c,--context", options->context, "positions of the context (0: the model's own, at most 4096)")
      ->check(number_between(0, 1 << 30))
      ->capture_default_str();
  app.add_option("--stop", options->stop, "end the answer before this text; may be given several times")
      ->allow_extra_args(false);  // each takes one word: the next ones are the model and the prompt
  CLI::Option* const grammar =
      app.add_option("--grammar", options->grammar, "the answer is a text of the grammar in this file (GBNF)")
          ->option_text("FILE");
  app.add_option("--json-schema", options->json_schema, "the answer is JSON of the schema in this file")
      ->option_text("FILE")
      ->excludes(grammar);
  declare_thinking_option(app, options->thinking);
  app.add_flag("--json", options->json, "print one JSON object instead of streaming");
  declare_sampling_options(app, options->sampling);
  declare_model_options(app, options->model);
  check_usage(app, [options] { return check_words(*options); });
  return [options] { return run(*options); };
}

}  // namespace

extern const Command k_command_run = {.path = "run", .summary = "answer a prompt", .declare = declare};

}  // namespace zinc
