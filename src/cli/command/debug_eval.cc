// `zinc debug eval`: logits, greedy tokens and likelihoods, for tests and comparisons. Prints one JSON object.
#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <memory>
#include <optional>

#include "base/atomic_file.h"
#include "base/json.h"
#include "cli/command.h"
#include "cli/model_file.h"
#include "cli/model_options.h"
#include "cli/number_in_range.h"
#include "engine/model_runner.h"

namespace zinc::command_debug_eval {
namespace {

struct Options {
  ModelOptions model;
  std::string tokens_text;
  std::string follow_text;
  std::vector<TokenId> tokens;
  std::vector<TokenId> follow;  // fed one by one after tokens, instead of the sampled ones
  std::string logits_out;
  int n_greedy = 0;
  bool nll = false;
};

TokenId argmax(std::span<const float> logits) {
  return static_cast<TokenId>(std::ranges::max_element(logits) - logits.begin());
}

// Mean of -ln p(tokens[i] | tokens before it) over i >= 1. logits: one row per token.
double mean_nll(std::span<const float> logits, std::span<const TokenId> tokens) {
  const size_t vocab = logits.size() / tokens.size();
  double sum = 0;
  for (size_t i = 0; i + 1 < tokens.size(); ++i) {
    const std::span<const float> row = logits.subspan(i * vocab, vocab);
    const double largest = *std::ranges::max_element(row);
    double total = 0;
    for (float x : row) total += std::exp(x - largest);
    sum -= row[static_cast<size_t>(tokens[i + 1])] - largest - std::log(total);
  }
  return sum / static_cast<double>(tokens.size() - 1);
}

std::string_view as_text(const std::vector<float>& floats) {
  return {reinterpret_cast<const char*>(floats.data()), floats.size() * sizeof(float)};
}

// "1,2,3"; nullopt for anything else.
std::optional<std::vector<TokenId>> parse_tokens(std::string_view text) {
  std::vector<TokenId> tokens;
  while (true) {
    TokenId id = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
    if (error != std::errc()) return std::nullopt;
    tokens.push_back(id);
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    if (text.empty()) return tokens;
    if (text[0] != ',') return std::nullopt;
    text.remove_prefix(1);
  }
}

std::string is_token_list(const std::string& text) {  // CLI11 validator: the error, or empty
  return parse_tokens(text) ? "" : fmt::format("'{}' is not a list of token ids such as 1,2,3", text);
}

Status check_ids(std::string_view option, std::span<const TokenId> ids, int64_t vocab_size) {
  for (TokenId id : ids) {
    if (id >= 0 && id < vocab_size) continue;
    return fail(ErrorCode::invalid_input, "{}: {} is not a valid token id; expected 0 to {}", option, id,
                vocab_size - 1);
  }
  return ok_status();
}

Status check_tokens(const Options& options, int64_t vocab_size) {
  if (Status valid = check_ids("--tokens", options.tokens, vocab_size); !valid.ok()) return valid;
  if (Status valid = check_ids("--follow", options.follow, vocab_size); !valid.ok()) return valid;
  if (options.nll && options.tokens.size() < 2) {
    return fail(ErrorCode::invalid_input, "--nll needs at least two tokens, --tokens gives {}", options.tokens.size());
  }
  return ok_status();
}

// The greedy choice at each of n positions, one decode step each. If `follow` is given, its ids are fed instead of the
// choices, and one row per position is appended to `logits` (which holds the first row on entry).
Result<json::array> decode_greedily(ModelRunner& runner, std::vector<float>& logits, int n,
                                    std::span<const TokenId> follow) {
  json::array ids;
  std::vector<float> row = logits;
  for (int i = 0; i < n; ++i) {
    TokenId id = argmax(row);
    ids.push_back(id);
    if (i + 1 == n) break;
    if (!follow.empty()) id = follow[static_cast<size_t>(i)];
    ZINC_TRY(next, runner.feed({&id, 1}));
    row.assign(next.begin(), next.end());
    if (!follow.empty()) logits.insert(logits.end(), row.begin(), row.end());
  }
  return ids;
}

Status run(const Options& options) {
  ZINC_TRY(model, load_model(options.model));
  if (Status valid = check_tokens(options, model.model().config.vocab_size); !valid.ok()) return valid;
  const int context = static_cast<int>(options.tokens.size()) + options.n_greedy;
  ZINC_TRY(runner, ModelRunner::create(model, {.context = context, .all_logits = options.nll}));
  json::object report;
  report["model"] = options.model.path;
  report["backend"] = model.backend_name();
  report["n_tokens"] = options.tokens.size();
  std::vector<float> last;
  if (options.nll) {
    ZINC_TRY(all, runner.feed_with_all_logits(options.tokens));
    report["nll"] = mean_nll(all, options.tokens);
    last.assign(all.end() - static_cast<ptrdiff_t>(all.size() / options.tokens.size()), all.end());
  } else {
    ZINC_TRY(logits, runner.feed(options.tokens));
    last.assign(logits.begin(), logits.end());
  }
  report["top"] = argmax(last);
  report["top_logit"] = last[static_cast<size_t>(argmax(last))];
  if (options.n_greedy > 0) {
    ZINC_TRY(ids, decode_greedily(runner, last, options.n_greedy, options.follow));
    report["greedy"] = std::move(ids);
  }
  if (!options.logits_out.empty()) {
    if (Status written = write_file_atomically(options.logits_out, as_text(last)); !written.ok()) {
      return written;
    }
    report["logits_out"] = options.logits_out;
  }
  fmt::print("{}\n", to_json(report));
  return ok_status();
}

std::function<Status()> declare(CLI::App& app) {
  auto options = std::make_shared<Options>();
  options->model.backend = "reference";  // the backend that is compared with the oracle by default
  app.add_option("model", options->model.path, kModelHelp)->required();
  app.add_option("--tokens", options->tokens_text, "comma-separated token ids")->required()->check(is_token_list);
  app.add_option("--logits-out", options->logits_out, "write the last position's logits as little-endian float32");
  CLI::Option* greedy = app.add_option("--greedy", options->n_greedy, "decode this many tokens greedily")
                            ->check(number_in_range(0, 1 << 20));
  app.add_option("--follow", options->follow_text,
                 "feed these ids one by one instead of the greedy choices; --logits-out has one row per id")
      ->check(is_token_list)
      ->excludes(greedy);
  app.add_flag("--nll", options->nll, "mean negative log-likelihood of the tokens");
  declare_model_options(app, options->model);
  return [options] {
    options->tokens = *parse_tokens(options->tokens_text);  // checked above
    if (!options->follow_text.empty()) {
      options->follow = *parse_tokens(options->follow_text);
      options->n_greedy = static_cast<int>(options->follow.size());
    }
    return run(*options);
  };
}

}  // namespace

extern const Command k_command_debug_eval = {
    .path = "debug eval", .summary = "logits, greedy ids and likelihood of given tokens, as JSON", .declare = declare};

}  // namespace zinc::command_debug_eval
