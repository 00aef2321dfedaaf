// `zinc run [MODEL] [PROMPT]`: one question, one answer. The answer streams to standard output; reasoning is shown only
// on a terminal. Without a prompt, a terminal gets a chat.
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>

#include "base/json.h"
#include "base/mapped_file.h"
#include "base/pluralize.h"
#include "cli/answer_view.h"
#include "cli/chat/start_chat.h"
#include "cli/command.h"
#include "cli/model_file.h"
#include "cli/model_options.h"
#include "cli/number_in_range.h"
#include "cli/output.h"
#include "cli/print_config.h"
#include "cli/prompt_input.h"
#include "cli/sampling_options.h"
#include "cli/sanitize_line.h"
#include "cli/sigint_watch.h"
#include "cli/terminal.h"
#include "cli/thinking_options.h"
#include "cli/trace_file.h"
#include "constrain/gbnf.h"
#include "constrain/json_schema.h"
#include "constrain/output_grammar.h"
#include "engine/chat_prompt.h"
#include "engine/generator.h"
#include "engine/thinking_budget.h"
#include "text/message_parser.h"

namespace zinc::command_run {
namespace {

constexpr int kMaxDefaultContext = 32768;  // enough for long reasoning; more only with -c
constexpr int kLongPrompt = 512;           // tokens; shorter prompts are read too fast to show progress

struct Options {
  ModelOptions model;
  PromptArguments input;
  std::string prompt;
  std::string system;
  bool json = false;
  bool verbose = false;
  bool print_config = false;
  bool no_history = false;
  int max_tokens = 0;
  int context = 0;
  std::vector<std::string> stop;
  std::string grammar, json_schema;  // files that constrain the output
  ThinkingOptions thinking;
  SamplingOptions sampling;
  TraceArguments trace;
};

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
  if (options.input.raw) {
    tokenizer.encode(options.prompt, {.add_special = true, .parse_special = false}, out.tokens);
    return out;
  }
  ZINC_TRY(chat, ChatPrompt::load(model.file(), tokenizer, model.chat_template()));
  json::array messages;
  if (!options.system.empty()) messages.push_back({{"role", "system"}, {"content", options.system}});
  messages.push_back({{"role", "user"}, {"content", options.prompt}});
  ChatTemplateInputs request;
  request.messages = std::move(messages);
  out.format = &detect_tool_format(chat.chat_template().source(), model.model().architecture->gguf_name);
  const ThinkingSupport thinking = chat.thinking_support(*out.format);
  const std::string ignored =
      ignored_thinking_text(options.thinking, thinking, std::filesystem::path(options.model.path).stem().string());
  if (!ignored.empty()) print_stderr("zinc: " + sanitize_line(ignored));
  thinking.set_variables(options.thinking.mode, request.kwargs);
  ZINC_TRY(prompt, chat.render(std::move(request)));
  if (options.thinking.mode.is_on == false) close_open_reasoning(*out.format, prompt);
  out.tokens = chat.encode(prompt);
  out.starts_in_reasoning = prompt_opens_reasoning(*out.format, prompt.text());
  return out;
}

Result<OutputConstraint> make_constraint(Grammar grammar, const Options& options, const Prompt& prompt,
                                         const Tokenizer& tokenizer) {
  const auto trie = std::make_shared<const TokenTrie>(tokenizer);
  const ReasoningPosition reasoning{.starts_open = prompt.starts_in_reasoning,
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

// Whether the tags of the reasoning are control tokens, which the detokenizer hides by default.
bool has_control_markers(const ToolFormat& format, const Tokenizer& tokenizer) {
  std::vector<TokenId> tokens;
  tokenizer.encode(format.thinking.open, {.add_special = false, .parse_special = true}, tokens);
  return !tokens.empty() && tokenizer.is_control(tokens.front());
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
std::string truncation_note(const Options& options, StopReason reason, int context, int64_t trained,
                            bool is_reasoning) {
  const char* const what = is_reasoning ? "the output was cut off before the answer" : "the answer was cut off";
  if (reason == StopReason::max_tokens) {
    return fmt::format("zinc: {} at the limit of {}; use -n to raise it (0: until the context is full)", what,
                       pluralize(options.max_tokens, "token"));
  }
  if (reason != StopReason::context_full) return "";
  return fmt::format("zinc: {}: the context of {} tokens{} is full{}", what, context,
                     context == trained ? ", the model's maximum," : "",
                     context < trained ? "; use -c to enlarge it" : "");
}

std::string report_of(const Options& options, const SamplingParams& sampling, std::string_view origin,
                      const GenerationResult& result, const AnswerView& view) {
  json::object report;
  report["model"] = options.model.path;
  report["text"] = view.answer();
  report["reasoning"] = view.reasoning();
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

// The output of the model, split into reasoning and answer. A raw prompt has no format: all of it is the answer.
class OutputSplitter {
 public:
  OutputSplitter(const Prompt& prompt, const Options& options, AnswerView& view) : view_(view) {
    if (!prompt.format) return;
    parser_.emplace(*prompt.format, ParserOptions{.thinking = options.thinking.mode.is_on.value_or(true),
                                                  .reasoning_open = prompt.starts_in_reasoning});
  }
  void push(std::string_view piece) {
    if (!parser_) return view_.show(ContentDelta{std::string(piece)});
    for (const Delta& delta : parser_->push(piece)) view_.show(delta);
  }
  void finish() {
    if (!parser_) return;
    for (const Delta& delta : parser_->finish()) view_.show(delta);
  }

 private:
  AnswerView& view_;
  std::optional<MessageParser> parser_;
};

// How far a long prompt is processed, on standard error if it is a terminal; erased before the answer.
class PromptProgressLine {
 public:
  explicit PromptProgressLine(size_t n_prompt)
      : n_prompt_(static_cast<int>(n_prompt)),
        is_shown_(n_prompt_ >= kLongPrompt && ::isatty(STDERR_FILENO) == 1 && !is_dumb_terminal()) {}
  ~PromptProgressLine() { erase(); }
  PromptProgressLine(const PromptProgressLine&) = delete;
  PromptProgressLine& operator=(const PromptProgressLine&) = delete;

  void show(int n_done) {
    if (!is_shown_ || n_done == n_done_) return;
    n_done_ = n_done;
    if (n_done >= n_prompt_) return erase();
    fmt::print(stderr, "\r\x1b[Kprocessing the prompt: {} of {} tokens", n_done, n_prompt_);
    has_line_ = true;
  }
  void erase() {
    if (has_line_) fmt::print(stderr, "\r\x1b[K");
    has_line_ = false;
  }

 private:
  int n_prompt_, n_done_ = -1;
  bool is_shown_, has_line_ = false;
};

AnswerViewOptions view_options(const Options& options) {
  const bool is_terminal = ::isatty(STDOUT_FILENO) == 1;
  return {.collects = options.json,
          .is_terminal = is_terminal,
          .has_colors = is_terminal && shows_colors(STDOUT_FILENO),
          .width = terminal_width(STDOUT_FILENO)};
}

// Without -c: as long as the model allows, up to kMaxDefaultContext, or half of that and so on if memory is short.
// Uploads the model once it is known that it fits.
Result<Sequence> create_sequence(ModelInstance& model, int context, const TraceOptions& trace) {
  const int64_t trained = model.model().config.max_context;
  if (context > trained) {
    print_stderr(
        fmt::format("zinc: the model was trained for a context of {} tokens, -c requests {}", trained, context));
  }
  int n_tokens = context > 0 ? context : static_cast<int>(std::min<int64_t>(trained, kMaxDefaultContext));
  while (true) {
    const Result<ModelMemory> memory = Sequence::measure(model, {.context = n_tokens});
    if (memory.ok()) break;
    const bool is_last = context > 0 || n_tokens <= kDefaultContext;
    if (is_last || memory.error().code != ErrorCode::out_of_memory) return memory.error();
    n_tokens = std::max(n_tokens / 2, kDefaultContext);
  }
  if (Status s = model.upload(); !s.ok()) return s.error();
  return Sequence::create(model, {.context = n_tokens, .trace = trace});
}

Status generate_answer(const Options& options, const TraceFile& trace_file) {
  ZINC_TRY(grammar, read_grammar(options));
  ZINC_TRY(model, open_model(options.model));
  ZINC_TRY(tokenizer, Tokenizer::load(model.file()));
  const RecommendedSampling recommended = recommended_sampling(model.file(), options.thinking.mode.is_on);
  const SamplingParams sampling = options.sampling.resolve(recommended);
  const auto n_vocab = static_cast<int32_t>(model.model().config.vocab_size);
  if (Status valid = validate(sampling, n_vocab); !valid.ok()) return valid;
  ZINC_TRY(prompt, make_prompt(options, model, tokenizer));
  const TraceOptions trace = trace_file.options(std::filesystem::path(options.model.path).stem().string());
  ZINC_TRY(sequence, create_sequence(model, options.context, trace));
  GenerationOptions generation{.sampling = sampling,
                               .max_tokens = options.max_tokens,
                               .stop = options.stop,
                               .show_control = prompt.format && has_control_markers(*prompt.format, tokenizer)};
  if (prompt.format) {
    generation.thinking = make_thinking_budget(
        *prompt.format, tokenizer,
        {.max_tokens = options.thinking.budget, .starts_open = prompt.starts_in_reasoning, .may_call_tools = false});
  }
  if (grammar) {
    ZINC_TRY(constraint, make_constraint(std::move(*grammar), options, prompt, tokenizer));
    generation.constraint = std::move(constraint);
  }
  AnswerView view(view_options(options));
  OutputSplitter splitter(prompt, options, view);
  PromptProgressLine progress(prompt.tokens.size());
  const SigintWatch watch;
  const GenerateHooks hooks{.text = [&](std::string_view piece) { splitter.push(piece); },
                            .cancelled =
                                [&] {
                                  progress.show(sequence.position());
                                  return SigintWatch::is_interrupted() || !view.written().ok();
                                },
                            .trace = trace.trace ? &trace : nullptr};
  const Result<GenerationResult> result = generate(sequence, tokenizer, prompt.tokens, generation, hooks);
  if (!result.ok()) return result.error();
  progress.erase();
  splitter.finish();
  view.end();
  if (!view.written().ok()) return view.written();
  Status written = ok_status();
  if (options.json) written = write_output(report_of(options, sampling, recommended.origin, result.value(), view));
  if (options.verbose) {
    print_stderr(device_text(options.model, model));
    print_stderr(figures_of(result.value(), sampling, options.sampling.uses_recommended() ? recommended.origin : ""));
  }
  const std::string truncation = truncation_note(options, result.value().reason, sequence.context(),
                                                 model.model().config.max_context, view.is_reasoning());
  if (!truncation.empty() && !options.json) print_stderr(truncation);
  if (written.ok() && SigintWatch::is_interrupted()) return fail(ErrorCode::cancelled, "interrupted");
  return written;
}

// `zinc run MODEL` without a prompt, on a terminal.
Status open_chat(const Options& options) {
  const bool is_one_answer = options.json || options.input.raw || !options.stop.empty() || !options.grammar.empty() ||
                             !options.json_schema.empty() || !options.trace.path.empty();
  if (is_one_answer || !::isatty(STDOUT_FILENO)) {
    return fail(ErrorCode::invalid_input,
                "no prompt; pass it as an argument (zinc run [MODEL] 'PROMPT') or on standard input; `zinc chat` opens "
                "a chat");
  }
  return start_chat({.options = {.model = options.model,
                                 .sampling = options.sampling,
                                 .context = options.context,
                                 .max_tokens = options.max_tokens,
                                 .thinking = options.thinking},
                     .system = options.system,
                     .no_history = options.no_history});
}

Status print_config(const CLI::App& app, Options& options) {
  options.model.path = named_model(options.input);
  std::vector<ConfigLine> lines = resolved_model(options.model);
  for (ConfigLine& line : resolved_sampling(options.model, options.thinking.mode.is_on))
    lines.push_back(std::move(line));
  return write_output(config_text(app, lines));
}

Status run(Options& options) {
  ZINC_TRY(input, read_prompt(options.input));
  options.model.path = std::move(input.model);
  if (!input.text) return open_chat(options);
  options.prompt = std::move(*input.text);
  ZINC_TRY(file, model_file(options.model.path));
  options.model.path = file.string();
  ZINC_TRY(trace, TraceFile::open(options.trace));
  return trace.finish(generate_answer(options, trace));
}

void declare_input_options(CLI::App& app, Options& options) {
  PromptArguments& input = options.input;
  app.add_option("model_and_prompt", input.words,
                 "a GGUF file, a name from `zinc list` or a source such as hf:ORG/REPO (if omitted: the default "
                 "model), and the prompt; text on standard input is put before the prompt")
      ->option_text("[MODEL] [PROMPT]");
  app.add_option("-m,--model", input.model, "the model")->option_text("MODEL");
  app.add_option("-p,--prompt", input.prompt, "the prompt")->option_text("TEXT");
  app.add_option("-f,--file", input.file, "put the text of FILE before the prompt; standard input is not read")
      ->option_text("FILE");
  app.add_flag("--no-stdin", input.no_stdin, "do not read standard input; for scripts whose input is an open pipe");
  app.add_option("--system", options.system, "system message");
  app.add_flag("--raw", input.raw, "continue the prompt as is, without the chat template");
  app.add_flag("--no-history", options.no_history,
               fmt::format("in the chat that opens without a prompt: {}", kNoHistoryHelp));
}

void declare_constraint_options(CLI::App& app, Options& options) {
  CLI::Option* const grammar =
      app.add_option("--grammar", options.grammar, "constrain the output to the GBNF grammar in FILE")
          ->option_text("FILE");
  app.add_option("--json-schema", options.json_schema, "constrain the output to the JSON schema in FILE")
      ->option_text("FILE")
      ->excludes(grammar);
}

std::function<Status()> declare(CLI::App& app) {
  auto options = std::make_shared<Options>();
  declare_input_options(app, *options);
  app.add_option("-n,--max-tokens,--predict,--n-predict", options->max_tokens,
                 "maximum tokens to generate, reasoning included (0: until the model ends or the context is full)")
      ->check(number_in_range(0, 1 << 30))
      ->capture_default_str();
  app.add_option("-c,--context,--ctx-size", options->context,
                 "context length in tokens (0: the model's maximum, up to 32768, if memory allows)")
      ->check(number_in_range(0, 1 << 30))
      ->capture_default_str();
  app.add_option("--stop", options->stop, "stop before this text; may be repeated")
      ->allow_extra_args(false);  // one word each: the next words are the model and the prompt
  declare_constraint_options(app, *options);
  declare_thinking_options(app, options->thinking);
  app.add_flag("--json", options->json, "print one JSON object instead of streaming");
  app.add_flag("-v,--verbose", options->verbose, "print the device, the speed and the sampling on standard error");
  declare_sampling_options(app, options->sampling);
  declare_chat_template_option(app, options->model);
  declare_model_options(app, options->model);
  declare_trace_options(app, options->trace);
  declare_print_config(app, options->print_config);
  check_usage(app, [options]() -> Status {
    if (Status checked = check_arguments(options->input); !checked.ok()) return checked;
    return options->sampling.check();
  });
  app.footer(
      "Examples:\n"
      "  zinc run 'Why is the sky blue?'\n"
      "  git diff | zinc run 'Summarize this change.'\n"
      "  zinc run qwen3-8b -f report.txt 'List the open questions.'\n"
      "  zinc run qwen3-8b     without a prompt, on a terminal: opens a chat\n\n"
      "Text on standard input and a prompt are joined: the text, an empty line, the prompt. If standard input is a "
      "pipe that stays open, zinc waits for its end; --no-stdin ignores it.");
  return [options, &app] { return options->print_config ? print_config(app, *options) : run(*options); };
}

}  // namespace

extern const Command k_command_run = {.path = "run", .summary = "answer a prompt", .declare = declare};

}  // namespace zinc::command_run
