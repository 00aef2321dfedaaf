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
#include "cli/chat/local_model.h"
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
#include "cli/speculation_option.h"
#include "cli/terminal.h"
#include "cli/thinking_options.h"
#include "cli/trace_file.h"
#include "constrain/gbnf.h"
#include "constrain/json_schema.h"

namespace zinc::command_run {
namespace {

constexpr int kLongPrompt = 512;  // tokens; shorter prompts are read too fast to show progress

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
  SpeculationOptions speculation;
  TraceArguments trace;
};

// The output format of --grammar and --json-schema. A file that is not valid is reported before the model is loaded.
Result<ResponseFormat> read_format(const Options& options) {
  const bool is_schema = !options.json_schema.empty();
  const std::string& path = is_schema ? options.json_schema : options.grammar;
  if (path.empty()) return ResponseFormat();
  ZINC_TRY(file, MappedFile::open(path));
  std::string text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  const auto in_file = [&](const Error& error) { return fail(error.code, "{}: {}", path, error.message); };
  Result<json::value> schema = is_schema ? parse_json(text) : json::value();
  if (!schema.ok()) return in_file(schema.error());
  const Result<Grammar> grammar = is_schema ? json_schema_grammar(schema.value()) : parse_gbnf(text);
  if (!grammar.ok()) return in_file(grammar.error());
  return ResponseFormat{.kind = is_schema ? ResponseFormat::Kind::json_schema : ResponseFormat::Kind::grammar,
                        .field = path,
                        .schema = std::move(schema.value()),
                        .grammar = std::move(text)};
}

ChatRequest request_of(const Options& options, const SamplingParams& sampling, ResponseFormat format) {
  ChatRequest request;
  if (options.input.raw) {
    request.prompts.emplace_back(options.prompt);
  } else {
    if (!options.system.empty()) request.messages.push_back({{"role", "system"}, {"content", options.system}});
    request.messages.push_back({{"role", "user"}, {"content", options.prompt}});
  }
  set_thinking(options.thinking, request);
  request.response_format = std::move(format);
  request.options.sampling = sampling;
  request.seed = sampling.seed;
  request.options.stop = options.stop;
  request.options.max_tokens = options.max_tokens;
  return request;
}

struct Generated {
  Outcome outcome;
  std::vector<TokenId> tokens;
  int n_prompt = 0;  // prompt tokens that were computed: fewer than the prompt has if it was cancelled
};

std::string figures_of(const Generated& answer, const SamplingParams& sampling, std::string_view origin) {
  const auto rate = [](int n, double seconds) { return seconds > 0 ? n / seconds : 0.0; };
  const Timings& timings = answer.outcome.timings;
  const int n = answer.outcome.usage.n_completion;
  return fmt::format("prompt {}, {:.1f} tok/s; generated {}, {:.1f} tok/s ({}); {}{}",
                     pluralize(answer.n_prompt, "token"), rate(answer.n_prompt, timings.prefill_s),
                     pluralize(n, "token"), rate(std::max(0, n - 1), timings.decode_s),
                     stop_reason_name(answer.outcome.reason), sampling_text(sampling),
                     origin.empty() ? "" : fmt::format(" ({})", origin));
}

// What speculative decoding did in the steps after the prompt, and why it drafted nothing in the others.
std::string speculation_text(const Usage& usage, const SpeculationStats& stats) {
  using enum DraftDecision;
  const auto n_steps = [&](DraftDecision decision) { return stats.n_steps[static_cast<size_t>(decision)]; };
  std::string text = fmt::format("speculation: {} of {} accepted", usage.n_draft_accepted,
                                 pluralize(usage.n_draft_accepted + usage.n_draft_rejected, "drafted token"));
  constexpr std::pair<DraftDecision, std::string_view> kDecisions[] = {{drafted, "with drafts"},
                                                                       {no_draft, "without a match"},
                                                                       {not_paying, "where drafts would not pay"},
                                                                       {unmeasured, "to measure"},
                                                                       {off, "with --speculate off"}};
  std::string_view separator = "; steps: ";
  for (const auto& [decision, words] : kDecisions) {
    if (n_steps(decision) == 0) continue;
    text += fmt::format("{}{} {}", separator, n_steps(decision), words);
    separator = ", ";
  }
  return stats.error.empty() ? text : text + "; the drafter failed: " + stats.error;
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
                      const Generated& answer, const AnswerView& view) {
  json::object report;
  report["model"] = options.model.path;
  report["text"] = view.answer();
  report["reasoning"] = view.reasoning();
  report["finish_reason"] = stop_reason_name(answer.outcome.reason);
  report["seed"] = sampling.seed;
  json::object used = sampling_json(sampling);
  used["seed"] = sampling.seed;
  report["sampling"] = std::move(used);
  report["sampling_origin"] = options.sampling.uses_recommended() ? json::value(origin) : json::value();
  report["prompt_tokens"] = answer.n_prompt;
  report["prompt_seconds"] = answer.outcome.timings.prefill_s;
  report["generated_tokens"] = answer.tokens.size();
  report["generated_seconds"] = answer.outcome.timings.decode_s;
  report["tokens"] = json::array(answer.tokens.begin(), answer.tokens.end());
  return to_json(report) + "\n";
}

// How far a long prompt is processed, on standard error if it is a terminal; erased before the answer.
class PromptProgressLine {
 public:
  PromptProgressLine() : is_terminal_(::isatty(STDERR_FILENO) == 1 && !is_dumb_terminal()) {}
  ~PromptProgressLine() { erase(); }
  PromptProgressLine(const PromptProgressLine&) = delete;
  PromptProgressLine& operator=(const PromptProgressLine&) = delete;

  void show(const PromptProgress& progress) {
    if (!is_terminal_ || progress.n_total < kLongPrompt) return;
    if (progress.n_done >= progress.n_total) return erase();
    fmt::print(stderr, "\r\x1b[Kprocessing the prompt: {} of {} tokens", progress.n_done, progress.n_total);
    has_line_ = true;
  }
  void erase() {
    if (has_line_) fmt::print(stderr, "\r\x1b[K");
    has_line_ = false;
  }

 private:
  bool is_terminal_, has_line_ = false;
};

AnswerViewOptions view_options(const Options& options) {
  const bool is_terminal = ::isatty(STDOUT_FILENO) == 1;
  return {.collects = options.json,
          .is_terminal = is_terminal,
          .has_colors = is_terminal && shows_colors(STDOUT_FILENO),
          .width = terminal_width(STDOUT_FILENO)};
}

Result<std::unique_ptr<LocalModel>> load(const Options& options, const TraceFile& trace) {
  const std::filesystem::path file = options.model.path;
  ZINC_TRY(model, LocalModel::load(options.model, file,
                                   {.context = options.context,
                                    .speculation = options.speculation,
                                    .trace = trace.options(file.stem().string())}));
  if (const int64_t trained = model->trained_context(); options.context > trained) {
    print_stderr(fmt::format("zinc: the model was trained for a context of {} tokens, -c requests {}", trained,
                             options.context));
  }
  const std::string ignored = ignored_thinking_text(options.thinking, model->thinking(), model->name());
  if (!options.input.raw && !ignored.empty()) print_stderr("zinc: " + sanitize_line(ignored));
  return std::move(model);
}

Error too_long_error(const LocalModel& model, int n_prompt) {
  const int64_t context = model.limits().context, trained = model.trained_context();
  return fail(ErrorCode::context_exceeded, "{} tokens do not fit in the context of {} tokens; use {}a shorter prompt",
              n_prompt, context,
              context < trained ? fmt::format("a larger context with -c (at most {}) or ", trained) : "");
}

Result<Generated> generate_answer(LocalModel& model, ChatRequest request, AnswerView& view) {
  Generated answer;
  PromptProgressLine progress_line;
  const ChatHooks hooks{
      .delta = [&](const Delta& delta) { view.show(delta); },
      .tokens = [&](auto more) { answer.tokens.insert(answer.tokens.end(), more.begin(), more.end()); },
      .progress =
          [&](const PromptProgress& progress) {
            answer.n_prompt = progress.n_done;
            progress_line.show(progress);
          },
      .cancelled = [&] { return SigintWatch::is_interrupted() || !view.written().ok(); }};
  Result<Outcome> outcome = model.answer(request, hooks);
  if (!outcome.ok() && outcome.error().code == ErrorCode::context_exceeded)
    return too_long_error(model, model.count_tokens(std::move(request)));
  if (!outcome.ok()) return outcome.error();
  answer.outcome = std::move(outcome.value());
  return answer;
}

Status answer_prompt(const Options& options, const TraceFile& trace) {
  ZINC_TRY(format, read_format(options));
  ZINC_TRY(model, load(options, trace));
  const RecommendedSampling& recommended = model->recommended_sampling(options.thinking.mode.is_on);
  const SamplingParams sampling = options.sampling.resolve(recommended);
  AnswerView view(view_options(options));
  const SigintWatch watch;
  ZINC_TRY(answer, generate_answer(*model, request_of(options, sampling, std::move(format)), view));
  view.end();
  if (!view.written().ok()) return view.written();
  Status written = ok_status();
  if (options.json) written = write_output(report_of(options, sampling, recommended.origin, answer, view));
  if (options.verbose) {
    print_stderr(device_text(options.model, model->instance()));
    print_stderr(figures_of(answer, sampling, options.sampling.uses_recommended() ? recommended.origin : ""));
    print_stderr(speculation_text(answer.outcome.usage, model->stats().speculation));
  }
  const std::string truncation = truncation_note(options, answer.outcome.reason, model->limits().context,
                                                 model->trained_context(), view.is_reasoning());
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
                                 .thinking = options.thinking,
                                 .speculation = options.speculation},
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
  return trace.finish(answer_prompt(options, trace));
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
                 "context length in tokens (0: the model's maximum, if memory allows)")
      ->check(number_in_range(0, 1 << 30))
      ->capture_default_str();
  app.add_option("--stop", options->stop, "stop before this text; may be repeated")
      ->allow_extra_args(false);  // one word each: the next words are the model and the prompt
  declare_constraint_options(app, *options);
  declare_thinking_options(app, options->thinking);
  app.add_flag("--json", options->json, "print one JSON object instead of streaming");
  app.add_flag("-v,--verbose", options->verbose,
               "print the device, the speed, the sampling and the accepted drafts on standard error");
  declare_sampling_options(app, options->sampling);
  declare_speculation_option(app, options->speculation);
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
