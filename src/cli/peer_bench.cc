#include "cli/peer_bench.h"

#include <CLI/CLI.hpp>

#include "base/json.h"
#include "base/sanitize_for_terminal.h"
#include "base/subprocess.h"

namespace zinc {
namespace {

constexpr size_t kMaxQuotedBytes = 300;

double number_or(const json::object& entry, std::string_view key, double otherwise) {
  const json::value* const value = entry.if_contains(key);
  return value && value->is_number() ? value->to_number<double>() : otherwise;
}

bool is_of(const json::object& entry, const BenchTest& test) {
  return number_or(entry, "n_prompt", 0) == test.n_prompt && number_or(entry, "n_gen", 0) == test.n_gen &&
         number_or(entry, "n_depth", 0) == test.depth;
}

// The last line of a failed program's output.
std::string last_line(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  const size_t line = text.rfind('\n');
  return sanitize_for_terminal(line == std::string::npos ? text : text.substr(line + 1), kMaxQuotedBytes);
}

}  // namespace

Result<double> read_peer_speed(std::string_view text, const BenchTest& test) {
  ZINC_TRY(parsed, parse_json(text));
  const json::array* const entries = parsed.if_array();
  if (!entries) return fail(ErrorCode::invalid_input, "expected a JSON array");
  for (const json::value& value : *entries) {
    const json::object* const entry = value.if_object();
    if (!entry || !is_of(*entry, test)) continue;
    const double rate = number_or(*entry, "avg_ts", 0);
    if (rate > 0) return rate;
    return fail(ErrorCode::invalid_input, "the entry for {} has no positive 'avg_ts'", test.name());
  }
  return fail(ErrorCode::invalid_input, "no entry for {} (n_prompt {}, n_gen {}, n_depth {})", test.name(),
              test.n_prompt, test.n_gen, test.depth);
}

Result<PeerBench> PeerBench::find(const std::string& command) {
  std::vector<std::string> words = CLI::detail::split_up(command);
  std::erase(words, "");
  if (words.empty()) return fail(ErrorCode::invalid_input, "--against: no program given; expected llama-bench");
  ZINC_TRY(lookup, run_process({.argv = {"sh", "-c", "command -v \"$0\"", words[0]}}));
  if (lookup.exit_code != 0) {
    return fail(ErrorCode::not_found, "--against: program {} not found; expected llama-bench", words[0]);
  }
  return PeerBench(std::move(words));
}

Result<double> PeerBench::tokens_per_s(const std::string& model, const BenchTest& test, int n_threads) const {
  Process process{.argv = command_};
  const auto add = [&](const char* option, std::string value) {
    process.argv.emplace_back(option);
    process.argv.push_back(std::move(value));
  };
  add("-m", model);
  add("-p", std::to_string(test.n_prompt));
  add("-n", std::to_string(test.n_gen));
  add("-d", std::to_string(test.depth));
  add("-r", "1");
  add("-t", std::to_string(n_threads));
  add("-o", "json");
  ZINC_TRY(end, run_process(process));
  if (end.exit_code != 0) {
    return fail(ErrorCode::invalid_input, "--against: {} exited with code {} at {}: {}", command_[0], end.exit_code,
                test.name(), last_line(end.err.empty() ? end.out : end.err));
  }
  const Result<double> rate = read_peer_speed(end.out, test);
  if (rate.ok()) return rate;
  return fail(ErrorCode::invalid_input, "--against: {}: output is not llama-bench JSON (-o json): {}", command_[0],
              rate.error().message);
}

}  // namespace zinc
