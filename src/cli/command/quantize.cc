// `zinc quantize IN OUT TYPE`: a GGUF file with its matrices in another type.
#include <fmt/format.h>

#include <memory>

#include "cli/command.h"
#include "cli/model_file.h"
#include "cli/model_options.h"
#include "cli/number_in_range.h"
#include "cli/output.h"
#include "cli/output_file.h"
#include "cli/perplexity_report.h"
#include "cli/read_windows.h"
#include "cli/sanitize_line.h"
#include "cli/sigint_watch.h"
#include "hub/disk_space.h"
#include "hub/inventory.h"
#include "quantize/write_quantized.h"

namespace zinc::command_quantize {
namespace {

namespace fs = std::filesystem;

constexpr int kReportWindows = 16;

struct Options {
  ModelOptions model;  // the input; --report runs it
  std::string output, type;
  std::vector<std::string> tensors;  // REGEX=TYPE
  std::string importance_path;
  WindowOptions report = {};  // of --report
  bool keep_split = false, allow_requantize = false, dry_run = false, force = false;
};

// The last '=' separates: names and types have none, a regular expression may.
Result<FormatOverride> parse_override(const std::string& text) {
  const size_t at = text.rfind('=');
  if (at == text.npos || at == 0) {
    return fail(ErrorCode::invalid_input, "--tensor: '{}' is not REGEX=TYPE, such as 'ffn_down=q6_k'", text);
  }
  const std::optional<const Format*> format = find_override_format(text.substr(at + 1));
  if (!format) {
    return fail(ErrorCode::invalid_input, "--tensor: '{}' is not a type; types with bits per weight: {}",
                text.substr(at + 1), override_format_names());
  }
  return FormatOverride{.pattern = text.substr(0, at), .format = *format};
}

std::string plan_line(const PlannedTensor& tensor) {
  const TensorView& view = tensor.source->view;
  const std::string change = tensor.quantizer ? fmt::format("{} -> {}", view.format->name, tensor.format->name)
                                              : std::string(view.format->name);
  return fmt::format("{:<16} {:<16} {}\n", change, view.shape.to_string(), sanitize_line(tensor.source->name));
}

std::string summary(const GgufFile& file, const QuantizePlan& plan, std::string_view type) {
  return fmt::format("{}, {}, {} tensors, {}, {:.2f} bits per weight",
                     sanitize_line(file.get_or<std::string_view>("general.architecture", "no architecture")), type,
                     plan.tensors.size(), human_bytes(plan.file_bytes()), plan.bits_per_weight());
}

Status print_plan(const GgufFile& file, const QuantizePlan& plan, std::string_view type) {
  std::string out;
  for (const PlannedTensor& tensor : plan.tensors) out += plan_line(tensor);
  out += fmt::format("{} ({} bytes)\n", summary(file, plan, type), plan.file_bytes());
  return write_output(out);
}

Status check_outputs(const Options& options, const GgufFile& file, std::span<const fs::path> paths,
                     const QuantizePlan& plan) {
  std::error_code ignored;
  for (const fs::path& path : paths) {
    for (const std::string& shard : file.shard_names()) {
      if (!fs::equivalent(path, shard, ignored)) continue;
      return fail(ErrorCode::invalid_input, "{}: this is the input; choose another name for the output", path.string());
    }
    if (options.force) continue;
    if (Status is_free = check_not_existing(path); !is_free.ok()) return is_free;
  }
  const fs::path folder = paths[0].has_parent_path() ? paths[0].parent_path() : fs::path(".");
  const uint64_t n_free = free_disk_bytes(folder);
  if (n_free == 0 || n_free >= plan.file_bytes()) return ok_status();
  return fail(ErrorCode::io, "{}: not enough disk space: {} free, {} needed; free some space or write to another disk",
              folder.string(), human_bytes(n_free), human_bytes(plan.file_bytes()));
}

// The input's predictions, kept in a file without a name next to the output.
Result<PredictionFile> save_baseline(const Options& options, const WindowedText& text, const fs::path& output,
                                     const ScoreOptions& how) {
  ZINC_TRY(model, load_model(options.model));
  const fs::path path = output.string() + ".baseline";
  ZINC_TRY(writer,
           PredictionWriter::create(path, static_cast<int>(model.model().config.vocab_size), text.window, text.tokens));
  ScoreOptions saving = how;
  saving.save = &writer;
  ZINC_TRY(scores, score_windows(model, text, saving));
  ZINC_TRY(committed, writer.commit());
  Result<PredictionFile> file = PredictionFile::open(path);
  std::error_code ignored;
  fs::remove(path, ignored);
  return file;
}

// KL divergence and top-1 agreement of the new file against the input.
Status print_report(const Options& options, const WindowedText& text, const fs::path& output) {
  ScoreOptions how{
      .progress = [&](int n_done,
                      const TextScores&) { print_stderr(fmt::format("window {} of {}", n_done, text.n_windows())); },
      .cancelled = SigintWatch::is_interrupted};
  ZINC_TRY(baseline, save_baseline(options, text, output, how));
  ModelOptions quantized = options.model;
  quantized.path = output.string();
  ZINC_TRY(model, load_model(quantized));
  how.baseline = &baseline;
  ZINC_TRY(scores, score_windows(model, text, how));
  return write_output(scores_text(scores));
}

Status write_and_report(const Options& options, const GgufFile& file, const QuantizePlan& plan,
                        const ImportanceMatrix* importance, std::span<const fs::path> paths) {
  WindowedText text;
  if (!options.report.path.empty()) {  // before the work: a text that is too short is an error now
    ZINC_TRY(input, open_model(options.model));
    ZINC_TRY(windows, read_windows(options.report, input));
    text = std::move(windows);
  }
  const SigintWatch watch;
  {
    ProgressBar bar;
    ZINC_TRY(written, write_quantized(file, plan, importance, paths, write_callbacks(bar, DownloadPhase::quantizing),
                                      options.model.n_threads));
  }
  const std::string files = paths.size() == 1 ? "" : fmt::format(" and {} more", paths.size() - 1);
  ZINC_TRY(printed,
           write_output(fmt::format("{}{}: {}\n", paths[0].string(), files, summary(file, plan, options.type))));
  return options.report.path.empty() ? ok_status() : print_report(options, text, paths[0]);
}

Status run(Options options) {
  ZINC_TRY(input, model_file(options.model.path));
  options.model.path = input.string();
  ZINC_TRY(file, GgufFile::open(input));
  std::optional<ImportanceMatrix> importance;
  if (!options.importance_path.empty()) {
    ZINC_TRY(read, read_importance_matrix(options.importance_path));
    importance = std::move(read);
  }
  QuantizeOptions how{.type = find_quantization_type(options.type),
                      .importance = importance ? &*importance : nullptr,
                      .importance_path = options.importance_path,
                      .allow_requantize = options.allow_requantize,
                      .keep_split = options.keep_split,
                      .dry_run = options.dry_run};
  options.type = how.type->name;
  for (const std::string& text : options.tensors) {
    ZINC_TRY(entry, parse_override(text));
    how.overrides.push_back(entry);
  }
  ZINC_TRY(plan, plan_quantization(file, how));
  const std::vector<fs::path> paths = output_paths(options.output, plan.headers.size());
  if (!options.dry_run) {
    if (Status writable = check_outputs(options, file, paths, plan); !writable.ok()) return writable;
  }
  for (const std::string& warning : plan.warnings) print_stderr(sanitize_line("warning: " + warning));
  if (options.dry_run) return print_plan(file, plan, options.type);
  return write_and_report(options, file, plan, how.importance, paths);
}

Status check(Options& options) {
  if (options.dry_run && options.type.empty()) std::swap(options.output, options.type);  // IN TYPE
  if (options.type.empty()) {
    return fail(ErrorCode::invalid_input,
                "IN OUT TYPE are needed; with --dry-run OUT can be left out. Types with bits per weight: {}",
                quantization_type_names());
  }
  if (!find_quantization_type(options.type)) {
    return fail(ErrorCode::invalid_input, "'{}' is not a type; types with bits per weight: {}", options.type,
                quantization_type_names());
  }
  for (const std::string& text : options.tensors) {
    if (const Result<FormatOverride> entry = parse_override(text); !entry.ok()) return entry.error();
  }
  return ok_status();
}

std::function<Status()> declare(CLI::App& app) {
  auto options = std::make_shared<Options>();
  options->report.max_windows = kReportWindows;
  app.add_option("in", options->model.path, kModelHelp)->required();
  app.add_option("out", options->output, "GGUF file to write; with --keep-split the name of the shards");
  app.add_option("type", options->type,
                 "type of the matrices, with the bits per weight of its main format: " + quantization_type_names())
      ->option_text("TYPE");
  app.add_option(
         "--tensor", options->tensors,
         "the type of tensors whose name matches, such as 'ffn_down=q6_k' or '^output=copy'; the first match of "
         "several --tensor decides")
      ->option_text("REGEX=TYPE")
      ->allow_extra_args(false);
  app.add_option("--imatrix", options->importance_path,
                 "importance matrix of `zinc imatrix` or llama-imatrix: which columns matter most")
      ->option_text("FILE");
  app.add_flag("--keep-split", options->keep_split, "write as many shards as the input has; else one file");
  app.add_flag("--allow-requantize", options->allow_requantize,
               "quantize tensors that are quantized already: loses more than quantizing the original");
  app.add_flag("--dry-run", options->dry_run, "print every tensor's type and the size, and write nothing");
  app.add_flag("--force", options->force, "replace the file if it exists");
  app.add_option("--report", options->report.path,
                 "then compare the new file with the input on this text: KL divergence, top-1 agreement")
      ->option_text("TEXT");
  app.add_option("-c,--context", options->report.window, "--report: tokens per window")
      ->check(number_in_range(kMinWindow, 1 << 20))
      ->capture_default_str();
  app.add_option("--windows", options->report.max_windows, "--report: number of windows (0: the whole text)")
      ->check(number_in_range(0, 1 << 20))
      ->capture_default_str();
  declare_model_options(app, options->model);
  check_usage(app, [options] { return check(*options); });
  return [options] { return run(*options); };
}

}  // namespace

extern const Command k_command_quantize = {
    .path = "quantize", .summary = "write a GGUF file with its matrices in a smaller type", .declare = declare};

}  // namespace zinc::command_quantize
