// `zinc convert FOLDER OUT.gguf`: a Hugging Face checkpoint becomes a GGUF file.
#include "convert/convert.h"

#include <fmt/core.h>

#include <memory>

#include "cli/command.h"
#include "cli/output.h"
#include "cli/output_file.h"
#include "cli/sanitize_line.h"
#include "cli/sigint_watch.h"
#include "hub/inventory.h"
#include "model/model.h"
#include "text/tokenizer.h"

namespace zinc::command_convert {
namespace {

struct Options {
  std::string folder, output, type;
  std::string pretokenizer;
  bool dry_run = false, force = false;
};

// What the program will check when it runs the file, so that a mistake is found now.
Status check_output(const std::string& path) {
  ZINC_TRY(file, GgufFile::open(path));
  ZINC_TRY(model, read_model(file));
  ZINC_TRY(tokenizer, Tokenizer::load(file));
  return ok_status();
}

std::string tensor_line(const OutputTensor& tensor) {
  return fmt::format("{:<5} {:<16} {}\n", tensor.format->name, tensor.shape.to_string(), sanitize_line(tensor.name));
}

Status print_plan(const Conversion& conversion) {
  std::string out;
  for (const OutputTensor& tensor : conversion.tensors) out += tensor_line(tensor);
  out += fmt::format("{}: {} tensors, {} metadata keys, {} ({} bytes)\n", conversion.architecture,
                     conversion.tensors.size(), conversion.header.n_metadata(),
                     human_bytes(conversion.header.file_bytes()), conversion.header.file_bytes());
  return write_output(out);
}

Status write(const Conversion& conversion, const Options& options) {
  const SigintWatch watch;
  {
    ProgressBar bar;
    ZINC_TRY(written, write_gguf(conversion, options.output, write_callbacks(bar, DownloadPhase::converting)));
  }
  if (const Status checked = check_output(options.output); !checked.ok()) {
    return fail(checked.error().code, "the file was written, but zinc cannot run it: {}", checked.error().message);
  }
  return write_output(fmt::format("{}: {}, {} tensors, {}\n", options.output, conversion.architecture,
                                  conversion.tensors.size(), human_bytes(conversion.header.file_bytes())));
}

Status run(const Options& options) {
  ConversionOptions how{.pretokenizer = options.pretokenizer};
  if (!options.type.empty()) how.format = find_conversion_format(options.type);
  if (!options.force && !options.dry_run) {
    if (Status is_free = check_not_existing(options.output); !is_free.ok()) return is_free;
  }
  ZINC_TRY(conversion, plan_conversion(options.folder, how));
  for (const std::string& warning : conversion.warnings) print_stderr(sanitize_line("warning: " + warning));
  return options.dry_run ? print_plan(conversion) : write(conversion, options);
}

std::function<Status()> declare(CLI::App& app) {
  auto options = std::make_shared<Options>();
  app.add_option("folder", options->folder, "folder of a Hugging Face checkpoint: config.json, safetensors, tokenizer")
      ->required();
  CLI::Option* const output = app.add_option("output", options->output, "GGUF file to write");
  app.add_option(
         "--type", options->type,
         "type of the matrices: " + conversion_format_names() + "; default: that of the checkpoint, bf16 of FP8")
      ->option_text("TYPE");
  app.add_option("--pre", options->pretokenizer, "tokenizer.ggml.pre, if the pre-tokenizer's rules are not known")
      ->option_text("NAME");
  CLI::Option* const dry_run =
      app.add_flag("--dry-run", options->dry_run, "print the tensors and the size of the file, and write nothing");
  app.add_flag("--force", options->force, "replace the file if it exists");
  check_usage(app, [options, output, dry_run]() -> Status {
    if (output->count() == 0 && dry_run->count() == 0) {
      return fail(ErrorCode::invalid_input, "the file to write is missing; with --dry-run it can be left out");
    }
    if (!options->type.empty() && !find_conversion_format(options->type)) {
      return fail(ErrorCode::invalid_input, "--type: '{}' is not one of {}", options->type, conversion_format_names());
    }
    return ok_status();
  });
  return [options] { return run(*options); };
}

}  // namespace

extern const Command k_command_convert = {
    .path = "convert", .summary = "convert a Hugging Face checkpoint to GGUF", .declare = declare};

}  // namespace zinc::command_convert
