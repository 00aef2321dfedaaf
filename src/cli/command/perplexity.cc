// `zinc perplexity MODEL FILE`: perplexity of a text, and KL divergence from a saved baseline.
#include <fmt/core.h>

#include <cmath>
#include <memory>

#include "base/json.h"
#include "cli/command.h"
#include "cli/model_file.h"
#include "cli/model_options.h"
#include "cli/number_in_range.h"
#include "cli/perplexity_report.h"
#include "cli/read_windows.h"

namespace zinc::command_perplexity {
namespace {

struct Options {
  ModelOptions model;
  WindowOptions text;
  std::string save_path, baseline_path;
  bool json = false;
};

// A baseline is comparable only if both runs predicted the same tokens.
Result<std::optional<PredictionFile>> open_baseline(const Options& options, const WindowedText& text, int64_t n_vocab) {
  if (options.baseline_path.empty()) return std::optional<PredictionFile>();
  ZINC_TRY(file, PredictionFile::open(options.baseline_path));
  if (file.window() != text.window || file.n_windows() != text.n_windows()) {
    return fail(ErrorCode::invalid_input,
                "{}: the baseline has {} windows of {} tokens, this run {} of {}; use the same text, -c and --windows",
                options.baseline_path, file.n_windows(), file.window(), text.n_windows(), text.window);
  }
  if (file.n_vocab() != n_vocab || file.tokens() != text.tokens) {
    return fail(ErrorCode::invalid_input,
                "{}: the baseline was computed from different tokens (another text or vocabulary)",
                options.baseline_path);
  }
  return std::optional<PredictionFile>(std::move(file));
}

double share_of(int part, size_t total) { return static_cast<double>(part) / static_cast<double>(total); }

json::object report_of(const Options& options, const WindowedText& text, const TextScores& scores,
                       std::string_view backend) {
  const double mean = mean_of(scores.nll);
  json::object report{{"model", options.model.path},
                      {"backend", backend},
                      {"window", text.window},
                      {"n_windows", text.n_windows()},
                      {"n_scored", scores.nll.size()},
                      {"nll", mean},
                      {"nll_error", error_of_mean(scores.nll)},
                      {"perplexity", std::exp(mean)}};
  if (scores.divergence.empty()) return report;
  report["baseline_nll"] = mean_of(scores.baseline_nll);
  report["kl_mean"] = mean_of(scores.divergence);
  report["kl_median"] = quantile(scores.divergence, 0.5);
  report["kl_p99"] = quantile(scores.divergence, 0.99);
  report["kl_max"] = quantile(scores.divergence, 1);
  report["top1_agreement"] = share_of(scores.n_same_top, scores.divergence.size());
  return report;
}

Status run(const Options& options) {
  ZINC_TRY(model, load_model(options.model));
  ZINC_TRY(text, read_windows(options.text, model));
  const int n_vocab = static_cast<int>(model.model().config.vocab_size);
  ZINC_TRY(baseline, open_baseline(options, text, n_vocab));
  std::optional<PredictionWriter> writer;
  if (!options.save_path.empty()) {
    ZINC_TRY(created, PredictionWriter::create(options.save_path, n_vocab, text.window, text.tokens));
    writer = std::move(created);
  }
  const auto progress = [&](int n_done, const TextScores& scores) {
    fmt::print(stderr, "window {} of {}: perplexity {:.4f}\n", n_done, text.n_windows(), std::exp(mean_of(scores.nll)));
  };
  ZINC_TRY(scores, score_windows(model, text,
                                 {.save = writer ? &*writer : nullptr,
                                  .baseline = baseline ? &*baseline : nullptr,
                                  .progress = progress}));
  if (writer) {
    if (Status saved = writer->commit(); !saved.ok()) return saved;
  }
  if (options.json) {
    fmt::print("{}\n", to_json(report_of(options, text, scores, model.backend_name())));
  } else {
    fmt::print("{}", scores_text(scores));
  }
  return ok_status();
}

std::function<Status()> declare(CLI::App& app) {
  auto options = std::make_shared<Options>();
  app.add_option("model", options->model.path, kModelHelp)->required();
  app.add_option("file", options->text.path, "text file")->required();
  app.add_option("-c,--context", options->text.window, "tokens per window; the second half of each is scored")
      ->check(number_in_range(kMinWindow, 1 << 20))
      ->capture_default_str();
  app.add_option("--windows", options->text.max_windows, "stop after this many windows (0: the whole text)")
      ->check(number_in_range(0, 1 << 20))
      ->capture_default_str();
  CLI::Option* save =
      app.add_option("--save-baseline", options->save_path, "save the predictions to FILE")->option_text("FILE");
  app.add_option("--baseline", options->baseline_path, "compare with the predictions in FILE: KL divergence")
      ->option_text("FILE")
      ->excludes(save);
  app.add_flag("--json", options->json, "print one JSON object");
  declare_model_options(app, options->model);
  return [options] { return run(*options); };
}

}  // namespace

extern const Command k_command_perplexity = {
    .path = "perplexity",
    .summary = "measure perplexity of a text, and KL divergence from a baseline",
    .declare = declare};

}  // namespace zinc::command_perplexity
