// `zinc debug compare MODEL --backend A --against B`: the first layer and op whose results differ between two backends,
// or between two files of a model. Exit code 1 if there is one.
#include <fmt/format.h>

#include <memory>
#include <random>

#include "base/json.h"
#include "base/pluralize.h"
#include "cli/command.h"
#include "cli/model_file.h"
#include "cli/model_options.h"
#include "cli/number_in_range.h"
#include "cli/output.h"
#include "engine/compare_models.h"
#include "text/tokenizer.h"

namespace zinc::command_debug_compare {
namespace {

struct Options {
  ModelOptions model;
  std::string against = "reference", against_model;
  std::string prompt;
  int n_tokens = 24;
  double bound = 0;
  bool shows_layers = false, json = false;
};

// The prompt's tokens, or random ones: the same in each run.
Result<std::vector<TokenId>> tokens_of(const Options& options, const ModelInstance& model) {
  std::vector<TokenId> tokens;
  if (!options.prompt.empty()) {
    ZINC_TRY(tokenizer, Tokenizer::load(model.file()));
    tokenizer.encode(options.prompt, {.add_special = true, .parse_special = false}, tokens);
    return tokens;
  }
  std::minstd_rand random;
  const auto n_vocab = static_cast<unsigned>(model.model().config.vocab_size);
  for (int i = 0; i < options.n_tokens; ++i) tokens.push_back(static_cast<TokenId>(random() % n_vocab));
  return tokens;
}

std::string op_text(const OpDifference& op) {
  const std::string layer = op.layer >= 0 ? fmt::format("layer {}", op.layer) : "outside the layers";
  return fmt::format("{}, op {} ({}), node {}", layer, op_name(op.op), op.name.empty() ? "unnamed" : op.name, op.node);
}

std::string difference_text(const OpDifference& op) {
  std::string text = fmt::format(
      "first difference: {}, in the step at position {}\n  relative error {:.3g} (bound {:.3g}, its inputs have "
      "{:.3g}), "
      "largest absolute error {:.3g}\n",
      op_text(op), op.position, op.relative, op.bound, op.input_error, op.max_abs);
  for (const ValuePair& pair : op.values) {
    text += fmt::format("  row {}, element {}: {:.6g} and {:.6g}\n", pair.row, pair.element, pair.a, pair.b);
  }
  return text;
}

std::string report_text(const CompareResult& result, bool shows_layers) {
  std::string text;
  for (size_t i = 0; shows_layers && i < result.layer_errors.size(); ++i) {
    text += fmt::format("layer {}: relative error {:.3g}\n", i, result.layer_errors[i]);
  }
  if (result.first) return text + difference_text(*result.first);
  text += fmt::format("no op differs: {} compared, logits have a relative error of {:.3g} ({:.3g} with fused ops)\n",
                      pluralize(result.n_compared, "value"), result.logits_error, result.fused_logits_error);
  if (result.n_rerouted_rows > 0) {
    text += fmt::format("{} not compared to the end: near ties of the router chose other experts\n",
                        pluralize(result.n_rerouted_rows, "row"));
  }
  return text;
}

json::object report_json(const CompareResult& result) {
  json::object report{{"layer_errors", json::array(result.layer_errors.begin(), result.layer_errors.end())},
                      {"compared_values", result.n_compared},
                      {"rerouted_rows", result.n_rerouted_rows},
                      {"logits_error", result.logits_error},
                      {"fused_logits_error", result.fused_logits_error},
                      {"first_difference", nullptr}};
  if (!result.first) return report;
  const OpDifference& op = *result.first;
  json::array values;
  for (const ValuePair& pair : op.values) {
    values.push_back(json::object{{"row", pair.row}, {"element", pair.element}, {"a", pair.a}, {"b", pair.b}});
  }
  report["first_difference"] = json::object{{"node", op.node},
                                            {"layer", op.layer},
                                            {"op", op_name(op.op)},
                                            {"name", op.name},
                                            {"position", op.position},
                                            {"relative_error", op.relative},
                                            {"input_error", op.input_error},
                                            {"bound", op.bound},
                                            {"max_abs_error", op.max_abs},
                                            {"values", std::move(values)}};
  return report;
}

Status run(const Options& options) {
  ZINC_TRY(a, load_model(options.model));
  ModelOptions other = options.model;
  other.backend = options.against;
  other.placement = {};
  if (!options.against_model.empty()) other.path = options.against_model;
  ZINC_TRY(b, load_model(other));
  ZINC_TRY(tokens, tokens_of(options, a));
  const int n_prefill = std::max<int>(1, static_cast<int>(tokens.size()) * 2 / 3);
  ZINC_TRY(result, compare_models(a, b, {.tokens = tokens, .n_prefill = n_prefill, .bound = options.bound}));
  const std::string report =
      options.json ? to_json(report_json(result)) + "\n" : report_text(result, options.shows_layers);
  if (Status written = write_output(report); !written.ok()) return written;
  if (result.first) {
    return fail(ErrorCode::unsupported, "{} and {} differ at {}", a.backend_name(), b.backend_name(),
                op_text(*result.first));
  }
  if (result.fused_differs) {
    return fail(ErrorCode::unsupported,
                "{} and {} differ only with fused ops (relative error of the logits: {:.3g}, without fusion {:.3g})",
                a.backend_name(), b.backend_name(), result.fused_logits_error, result.logits_error);
  }
  return ok_status();
}

std::function<Status()> declare(CLI::App& app) {
  auto options = std::make_shared<Options>();
  app.add_option("model", options->model.path, kModelHelp)->required();
  app.add_option("--against", options->against, "the backend to compare with")->capture_default_str();
  app.add_option("--against-model", options->against_model,
                 "another file of the same model, such as its f16 version (default: the same file)")
      ->option_text("MODEL");
  CLI::Option* const tokens =
      app.add_option("--tokens", options->n_tokens, "number of random tokens; two thirds in one step, then one by one")
          ->check(number_in_range(1, 4096))
          ->capture_default_str();
  app.add_option("--prompt", options->prompt, "compare on this text")->option_text("TEXT")->excludes(tokens);
  app.add_option("--bound", options->bound,
                 "allowed relative error of each op with exact inputs (0: by its arithmetic)")
      ->check(CLI::Range(0.0, 10.0))
      ->capture_default_str();
  app.add_flag("--layers", options->shows_layers, "also print the error after each layer");
  app.add_flag("--json", options->json, "print one JSON object");
  declare_model_options(app, options->model);
  app.footer(
      "Both compute the same tokens; every value of the graph is compared in order of execution. An op differs if its "
      "error exceeds what its arithmetic (8-bit activations, KV format) and the errors of its inputs explain. Exit "
      "code "
      "1: an op differs.");
  return [options] { return run(*options); };
}

}  // namespace

extern const Command k_command_debug_compare = {
    .path = "debug compare",
    .summary = "find the first op whose result differs between two backends",
    .declare = declare};

}  // namespace zinc::command_debug_compare
