// `zinc imatrix MODEL TEXT`: the importance matrix of a model, for quantizing it.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <memory>

#include "base/pluralize.h"
#include "base/sha256.h"
#include "cli/command.h"
#include "cli/model_file.h"
#include "cli/model_options.h"
#include "cli/number_in_range.h"
#include "cli/output.h"
#include "cli/read_windows.h"
#include "cli/sanitize_line.h"
#include "cli/sigint_watch.h"
#include "cli/time_text.h"
#include "engine/importance_collector.h"
#include "engine/model_fingerprint.h"

namespace zinc::command_imatrix {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kProgressInterval = std::chrono::seconds(2);
constexpr size_t kShownWeights = 4;

struct Options {
  ModelOptions model;
  WindowOptions text;
  std::vector<std::string> merged;
  std::string output = "imatrix.gguf";
  int save_every = 10;  // windows
  bool process_output = false, resume = false, force = false;
};

std::string hash_of(std::span<const TokenId> tokens) { return sha256_hex(std::as_bytes(tokens)); }

Status check_free(const Options& options) {
  std::error_code ignored;
  if (options.force || !std::filesystem::exists(options.output, ignored)) return ok_status();
  return fail(ErrorCode::invalid_input, "{}: already exists; choose another name with -o, {}replace it with --force",
              options.output, options.merged.empty() ? "continue it with --resume, or " : "or ");
}

// The matrix of an interrupted run of the same model, text and options.
Status check_resumable(const ImportanceMatrix& done, const WindowedText& text, const std::string& model) {
  if (!done.run) return fail(ErrorCode::invalid_input, "it was merged or made by another program");
  if (done.run->model != model) return fail(ErrorCode::invalid_input, "it is of another model");
  if (done.chunk_size != text.window) {
    return fail(ErrorCode::invalid_input, "its windows have {} tokens, those of this run {}", done.chunk_size,
                text.window);
  }
  const size_t n_windows = static_cast<size_t>(done.chunk_count);
  if (n_windows > static_cast<size_t>(text.n_windows())) {
    return fail(ErrorCode::invalid_input, "it has {} windows, and this run only {}", n_windows, text.n_windows());
  }
  const std::span<const TokenId> tokens = std::span(text.tokens).first(n_windows * static_cast<size_t>(text.window));
  if (done.run->tokens != hash_of(tokens)) return fail(ErrorCode::invalid_input, "it is of another text");
  return ok_status();
}

class Run {
 public:
  Run(const Options& options, WindowedText text, ImportanceCollector collector, ImportanceMatrix matrix)
      : options_(options), text_(std::move(text)), collector_(std::move(collector)), matrix_(std::move(matrix)) {}

  Status evaluate() {
    n_resumed_ = matrix_.chunk_count;
    if (n_resumed_ > 0) write_stderr(fmt::format("continuing after window {} of {}", n_resumed_, text_.n_windows()));
    started_ = shown_ = Clock::now();
    for (int w = static_cast<int>(matrix_.chunk_count); w < text_.n_windows(); ++w) {
      if (Status added = collector_.add_window(text_.at(w), matrix_); !added.ok()) return stop(added.error());
      const bool is_last = w + 1 == text_.n_windows();
      print_progress(is_last);
      if (!is_last && (w + 1) % options_.save_every == 0) {
        if (Status saved = save(); !saved.ok()) return saved;
      }
    }
    if (Status saved = save(); !saved.ok()) return saved;
    warn_of_experts();
    return write_output(fmt::format("{}: {}, {} of {} tokens\n", options_.output,
                                    pluralize(matrix_.entries.size(), "weight"),
                                    pluralize(static_cast<size_t>(matrix_.chunk_count), "window"), text_.window));
  }

 private:
  // What is complete is kept.
  Status stop(const Error& error) {
    if (error.code != ErrorCode::cancelled || matrix_.chunk_count == 0) return error;
    if (Status saved = save(); !saved.ok()) return saved;
    return fail(ErrorCode::cancelled,
                "interrupted; {} has {} of {} windows: repeat the command with --resume to continue", options_.output,
                matrix_.chunk_count, text_.n_windows());
  }

  Status save() {
    const size_t n_tokens = static_cast<size_t>(matrix_.chunk_count) * static_cast<size_t>(text_.window);
    matrix_.run->tokens = hash_of(std::span(text_.tokens).first(n_tokens));
    return write_importance_matrix(matrix_, options_.output);
  }

  void print_progress(bool is_last) {
    const Clock::time_point now = Clock::now();
    if (!is_last && now - shown_ < kProgressInterval) return;
    shown_ = now;
    const double seconds = std::chrono::duration<double>(now - started_).count();
    const double per_window = seconds / static_cast<double>(matrix_.chunk_count - n_resumed_);
    const std::string left =
        is_last ? ""
                : ", " + time_text(per_window * static_cast<double>(text_.n_windows() - matrix_.chunk_count)) + " left";
    write_stderr(fmt::format("window {} of {}, {:.0f} tokens/s{}", matrix_.chunk_count, text_.n_windows(),
                             text_.window / per_window, left));
  }

  void warn_of_experts() const {
    const std::vector<RarelyUsedExperts> rare = rarely_used_experts(matrix_);
    for (size_t i = 0; i < std::min(rare.size(), kShownWeights); ++i) {
      print_stderr(fmt::format("warning: {}: of {} experts, {} had no token and {} had fewer than {}",
                               sanitize_line(rare[i].weight), rare[i].n_experts, rare[i].n_unused, rare[i].n_rare,
                               kRareExpertRows));
    }
    if (rare.size() > kShownWeights) {
      print_stderr(fmt::format("warning: the same in {} other layers", rare.size() - kShownWeights));
    }
    if (!rare.empty()) print_stderr("warning: use a longer or more varied text for these experts");
  }

  const Options& options_;
  WindowedText text_;
  ImportanceCollector collector_;
  ImportanceMatrix matrix_;
  int64_t n_resumed_ = 0;
  Clock::time_point started_, shown_;
};

Result<ImportanceMatrix> first_matrix(const Options& options, const ImportanceCollector& collector,
                                      const WindowedText& text, const std::string& model) {
  std::error_code ignored;
  if (!options.resume || !std::filesystem::exists(options.output, ignored)) {
    ImportanceMatrix matrix = collector.empty_matrix();
    matrix.datasets = {options.text.path};
    matrix.run = ImportanceRun{.model = model, .tokens = {}};
    return matrix;
  }
  ZINC_TRY(done, read_importance_matrix(options.output));
  Status same = check_resumable(done, text, model);
  if (same.ok()) same = collector.check_entries(done);
  if (same.ok()) return std::move(done);
  return fail(ErrorCode::invalid_input, "{}: cannot be continued: {}; choose another file with -o", options.output,
              same.error().message);
}

Status collect(const Options& options) {
  if (!options.resume) {
    if (Status is_free = check_free(options); !is_free.ok()) return is_free;
  }
  ZINC_TRY(model, load_model(options.model));
  ZINC_TRY(text, read_windows(options.text, model));
  ZINC_TRY(fingerprint, fingerprint_of(model.file()));
  const SigintWatch watch;
  ZINC_TRY(collector, ImportanceCollector::create(model, {.window = text.window,
                                                          .has_output_head = options.process_output,
                                                          .n_threads = options.model.n_threads,
                                                          .is_cancelled = SigintWatch::is_interrupted}));
  ZINC_TRY(matrix, first_matrix(options, collector, text, to_hex(fingerprint)));
  Run run(options, std::move(text), std::move(collector), std::move(matrix));
  return run.evaluate();
}

Status merge(const Options& options) {
  if (Status is_free = check_free(options); !is_free.ok()) return is_free;
  ZINC_TRY(matrix, read_importance_matrix(options.merged.front()));
  matrix.run.reset();
  for (size_t i = 1; i < options.merged.size(); ++i) {
    ZINC_TRY(other, read_importance_matrix(options.merged[i]));
    if (Status merged = merge_importance(matrix, other); !merged.ok()) {
      return fail(merged.error().code, "{}: {}", options.merged[i], merged.error().message);
    }
  }
  if (Status saved = write_importance_matrix(matrix, options.output); !saved.ok()) return saved;
  return write_output(fmt::format("{}: {}, {} of {} tokens\n", options.output,
                                  pluralize(matrix.entries.size(), "weight"),
                                  pluralize(static_cast<size_t>(matrix.chunk_count), "window"), matrix.chunk_size));
}

Status run(const Options& options) { return options.merged.empty() ? collect(options) : merge(options); }

std::function<Status()> declare(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::Option* const model = app.add_option("model", options->model.path, kModelHelp);
  CLI::Option* const text = app.add_option("file", options->text.path, "text file, like the intended use of the model");
  app.add_option("-o,--output", options->output, "file to write")->option_text("FILE")->capture_default_str();
  app.add_option("-c,--context", options->text.window, "tokens per window")
      ->check(number_in_range(kMinWindow, 1 << 20))
      ->capture_default_str();
  app.add_option("--windows", options->text.max_windows, "stop after this many windows (0: the whole text)")
      ->check(number_in_range(0, 1 << 20))
      ->capture_default_str();
  app.add_option("--save-every", options->save_every, "save after every N windows")
      ->option_text("N")
      ->check(number_in_range(1, 1 << 20))
      ->capture_default_str();
  CLI::Option* const resume = app.add_flag("--resume", options->resume, "continue the output of an interrupted run");
  app.add_flag("--force", options->force, "replace the output if it exists")->excludes(resume);
  app.add_flag("--process-output", options->process_output, "collect for the output head too");
  app.add_flag("--parse-special", options->text.parses_special,
               "control tokens in the text, such as <|im_start|>, are parsed");
  CLI::Option* const merged =
      app.add_option("--merge", options->merged, "add these importance matrices, without a model and a text")
          ->option_text("FILE...")
          ->excludes(resume);
  check_usage(app, [model, text, merged]() -> Status {
    const bool has_model = model->count() > 0, merges = merged->count() > 0;
    if (merges && has_model) return fail(ErrorCode::invalid_input, "--merge takes no model and no text");
    if (merges || text->count() > 0) return ok_status();
    return fail(ErrorCode::invalid_input, "{} is missing", has_model ? "the text file" : "the model");
  });
  declare_model_options(app, options->model);
  return [options] { return run(*options); };
}

}  // namespace

extern const Command k_command_imatrix = {
    .path = "imatrix", .summary = "collect the importance matrix of a model, for quantizing it", .declare = declare};

}  // namespace zinc::command_imatrix
