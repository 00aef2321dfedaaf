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

#include "base/json.h"
#include "base/mapped_file.h"
#include "base/pluralize.h"
#include "cli/command.h"
#include "cli/model_file.h"
#include "cli/model_options.h"
#include "cli/number_in_range.h"
#include "cli/output.h"
#include "cli/sampling_options.h"
#include "cli/sanitize_text.h"
#include "cli/thinking_options.h"
#include "constrain/gbnf.h"
#include "constrain/json_schema.h"
#include "constrain/output_grammar.h"
#include "engine/chat_prompt.h"
#include "engine/generator.h"
#include "engine/thinking_budget.h"

namespace zinc::command_run {
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
  std::string grammar, json_schema;  // files that constrain the output
  ThinkingOptions thinking;
  SamplingOptions sampling;
};

std::atomic<bool> g_interrupted = false;

constexpr const char* kEmptyPrompt = "the prompt is empty; pass it as an argument or on standard input";
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

// The final newline of `echo` or an editor is not part of the prompt.
void drop_last_newline(std::string& text) {
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
}

Status check_arguments(const Options& options) {
  const std::vector<std::string>& words = options.positionals;
  if (words.size() > 2) {
    return fail(ErrorCode::invalid_input,
                "{} arguments where at most a model and a prompt are expected; quote the prompt: "
                "zinc run [MODEL] 'PROMPT'",
                words.size());
  }
  if (!words.empty() && words.back().empty() && !options.raw) return fail(ErrorCode::invalid_input, kEmptyPrompt);
  return options.sampling.check();
}

// A single word is the model if it names one, else the prompt. Without a prompt, standard input is read unless it is a
// terminal.
Status assign_positionals(Options& options) {
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
                "no prompt; pass it as an argument (zinc run [MODEL] 'PROMPT') or on standard input");
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

Result<std::optional<Grammar>> read_grammar(const Options& options) {
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
  const ToolFormat* format = nullptr;  // nullptr: a raw prompt
  bool starts_in_reasoning = false;
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
  ChatTemplateInputs request;
  request.messages = std::move(messages);
  out.format = &detect_tool_format(chat.chat_template().source(), model.model().architecture->gguf_name);
  chat.thinking_support(*out.format).set_variables(options.thinking.mode, request.kwargs);
  ZINC_TRY(prompt, chat.render(std::move(request)));
  if (options.thinking.mode.is_on == false) close_open_reasoning(*out.format, prompt);
  out.tokens = chat.encode(prompt);
  out.starts_in_reasoning = prompt_opens_reasoning(*out.format, prompt.text());
  return out;
}

Result<OutputConstraint> make_constraint(Grammar grammar, const Options& options, const Prompt& prompt,
                                         const Tokenizer& tokenizer) {
  const auto trie = std::make_shared<const TokenTrie>(tokenizer);
  const ReasoningPlace reasoning{.starts_open = prompt.starts_in_reasoning,
                                 .is_allowed = options.thinking.mode.is_on.value_or(true)};
  if (prompt.format && !prompt.format->channels.content_open.empty()) {
    ZINC_TRY(output, output_grammar({.format = *prompt.format,
                                     .content = OutputSyntax::Content::grammar,
                                     .content_grammar = std::move(grammar),
                                     .starts_in_reasoning = reasoning.starts_open,
                                     .may_reason = reasoning.is_allowed},
                                    *trie));
    grammar = std::move(output);
  }
  OutputConstraint constraint{.grammar = std::make_shared<Constraint>(std::move(grammar), tokenizer, trie)};
  if (prompt.format) exempt_reasoning(*prompt.format, tokenizer, reasoning, constraint);
  return constraint;
}

std::string figures_of(const GenerationResult& result, const SamplingParams& sampling, std::string_view origin) {
  const auto rate = [](size_t n, double seconds) { return seconds > 0 ? static_cast<double>(n) / seconds : 0.0; };
  return fmt::format(
      "prompt {}, {:.1f} tok/s; generated {}, {:.1f} tok/s ({}); {}{}", pluralize(result.n_prompt_tokens, "token"),
      rate(static_cast<size_t>(result.n_prompt_tokens), result.prompt_s), pluralize(result.tokens.size(), "token"),
      rate(static_cast<size_t>(result.n_decode_steps), result.decode_s), stop_reason_name(result.reason),
      sampling_text(sampling), origin.empty() ? "" : fmt::format(" ({})", origin));
}

// Why the answer was cut off, and the option that raises the limit; empty: it was not.
std::string truncation_note(const Options& options, StopReason reason, int context) {
  if (reason == StopReason::max_tokens) {
    return fmt::format(
        "zinc: the answer was cut off at the limit of {}; use -n to raise it (0: until the context is full)",
        pluralize(options.max_tokens, "token"));
  }
  if (reason != StopReason::context_full) return "";
  return fmt::format("zinc: the answer was cut off: the context of {} tokens is full; use -c to enlarge it", context);
}

std::string report_of(const Options& options, const SamplingParams& sampling, std::string_view origin,
                      const GenerationResult& result, const std::string& text) {
  json::object report;
  report["model"] = options.model.path;
  report["text"] = text;
  report["finish_reason"] = stop_reason_name(result.reason);
  report["seed"] = sampling.seed;
  report["sampling"] = sampling_json(sampling);
  report["sampling_origin"] = options.sampling.uses_recommended() ? json::value(origin) : json::value();
  report["prompt_tokens"] = result.n_prompt_tokens;
  report["prompt_seconds"] = result.prompt_s;
  report["generated_tokens"] = result.tokens.size();
  report["generated_seconds"] = result.decode_s;
  report["tokens"] = json::array(result.tokens.begin(), result.tokens.end());
  return to_json(report) + "\n";
}

// Ctrl-C stops the generation, not the program: the text so far is kept and the figures are printed. A second Ctrl-C,
// during a long step, ends the program.
class SigintWatch {
 public:
  SigintWatch() {
    g_interrupted = false;
    previous_ = std::signal(SIGINT, [](int) {
      g_interrupted = true;
      std::signal(SIGINT, SIG_DFL);
    });
  }
  ~SigintWatch() { std::signal(SIGINT, previous_); }
  SigintWatch(const SigintWatch&) = delete;
  SigintWatch& operator=(const SigintWatch&) = delete;

 private:
  void (*previous_)(int);
};

// Streams the output, or collects it for the report.
class OutputSink {
 public:
  explicit OutputSink(bool keeps) : keeps_(keeps), is_terminal_(::isatty(STDOUT_FILENO)) {}
  void push(std::string_view piece) {
    if (keeps_) {
      text_ += piece;
    } else if (written_.ok()) {
      written_ = is_terminal_ ? write_output(sanitize_text(piece)) : write_output(piece);
    }
  }
  const std::string& text() const { return text_; }
  const Status& written() const { return written_; }

 private:
  bool keeps_, is_terminal_;
  std::string text_;
  Status written_ = ok_status();
};

Status generate_answer(const Options& options) {
  ZINC_TRY(grammar, read_grammar(options));
  ZINC_TRY(model, load_model(options.model));
  ZINC_TRY(tokenizer, Tokenizer::load(model.file()));
  const ModelConfig& config = model.model().config;
  const RecommendedSampling recommended = recommended_sampling(model.file(), options.thinking.mode.is_on);
  const SamplingParams sampling = options.sampling.resolve(recommended);
  if (Status valid = validate(sampling, static_cast<int32_t>(config.vocab_size)); !valid.ok()) return valid;
  ZINC_TRY(prompt, make_prompt(options, model, tokenizer));
  if (options.context > config.max_context) {
    print_stderr(fmt::format("zinc: the model was trained for a context of {} tokens, -c requests {}",
                             config.max_context, options.context));
  }
  ZINC_TRY(sequence, Sequence::create(model, {.context = options.context}));
  OutputSink sink(options.json);
  const SigintWatch watch;
  const GenerateHooks hooks{.text = [&](std::string_view piece) { sink.push(piece); },
                            .cancelled = [&] { return g_interrupted.load() || !sink.written().ok(); }};
  GenerationOptions generation{.sampling = sampling, .max_tokens = options.max_tokens, .stop = options.stop};
  if (prompt.format) {
    generation.thinking = make_thinking_budget(
        *prompt.format, tokenizer,
        {.max_tokens = options.thinking.budget, .starts_open = prompt.starts_in_reasoning, .may_call_tools = false});
  }
  if (grammar) {
    ZINC_TRY(constraint, make_constraint(std::move(*grammar), options, prompt, tokenizer));
    generation.constraint = std::move(constraint);
  }
  const Result<GenerationResult> result = generate(sequence, tokenizer, prompt.tokens, generation, hooks);
  if (!result.ok()) return result.error();
  if (!sink.written().ok()) return sink.written();
  Status written =
      write_output(options.json ? report_of(options, sampling, recommended.origin, result.value(), sink.text()) : "\n");
  if (!options.json) {
    print_stderr(device_text(options.model, model));
    print_stderr(figures_of(result.value(), sampling, options.sampling.uses_recommended() ? recommended.origin : ""));
    const std::string truncation = truncation_note(options, result.value().reason, sequence.context());
    if (!truncation.empty()) print_stderr(truncation);
  }
  if (written.ok() && g_interrupted) return fail(ErrorCode::cancelled, "interrupted");
  return written;
}

Status run(Options& options) {
  if (Status assigned = assign_positionals(options); !assigned.ok()) return assigned;
  ZINC_TRY(file, model_file(options.model.path));
  options.model.path = file.string();
  return generate_answer(options);
}

std::function<Status()> declare(CLI::App& app) {
  auto options = std::make_shared<Options>();
  app.add_option("model_and_prompt", options->positionals,
                 "a GGUF file, a name from `zinc list` or a source such as hf:ORG/REPO (if omitted: the default "
                 "model), and the prompt (if omitted: standard input)")
      ->option_text("[MODEL] [PROMPT]");
  app.add_option("--system", options->system, "system message");
  app.add_flag("--raw", options->raw, "continue the prompt as is, without the chat template");
  app.add_option("-n,--max-tokens", options->max_tokens, "maximum tokens to generate (0: until the context is full)")
      ->check(number_in_range(0, 1 << 30))
      ->capture_default_str();
  app.add_option("-c,--context", options->context, "context length in tokens (0: the model's maximum, up to 4096)")
      ->check(number_in_range(0, 1 << 30))
      ->capture_default_str();
  app.add_option("--stop", options->stop, "stop before this text; may be repeated")
      ->allow_extra_args(false);  // one word each: the next words are the model and the prompt
  CLI::Option* const grammar =
      app.add_option("--grammar", options->grammar, "constrain the output to the GBNF grammar in FILE")
          ->option_text("FILE");
  app.add_option("--json-schema", options->json_schema, "constrain the output to the JSON schema in FILE")
      ->option_text("FILE")
      ->excludes(grammar);
  declare_thinking_options(app, options->thinking);
  app.add_flag("--json", options->json, "print one JSON object instead of streaming");
  declare_sampling_options(app, options->sampling);
  declare_model_options(app, options->model);
  check_usage(app, [options] { return check_arguments(*options); });
  return [options] { return run(*options); };
}

}  // namespace

extern const Command k_command_run = {.path = "run", .summary = "answer a prompt", .declare = declare};

}  // namespace zinc::command_run
