#include "cli/peer_bench.h"

#include <CLI/CLI.hpp>

#include <algorithm>

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

// Lines that are not JSON objects are the program's log.
Result<BatchTimes> read_peer_times(std::string_view text, const BatchTest& test) {
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    at = end + 1;
    if (!line.starts_with('{')) continue;
    ZINC_TRY(parsed, parse_json(line));
    const json::object& entry = parsed.as_object();
    if (number_or(entry, "pp", 0) != test.n_prompt || number_or(entry, "tg", 0) != test.n_gen ||
        number_or(entry, "pl", 0) != test.n_sequences) {
      continue;
    }
    const BatchTimes times{.prefill_s = number_or(entry, "t_pp", 0), .decode_s = number_or(entry, "t_tg", 0)};
    if (times.prefill_s <= 0 || times.decode_s <= 0) {
      return fail(ErrorCode::invalid_input, "the entry for {} has no positive 't_pp' and 't_tg'", test.name());
    }
    if (const double n_kv = number_or(entry, "n_kv", 0); n_kv != static_cast<double>(test.n_kv())) {
      return fail(ErrorCode::invalid_input, "{}: n_kv is {} instead of {}: the prompts must not be shared (-pps)",
                  test.name(), n_kv, test.n_kv());
    }
    return times;
  }
  return fail(ErrorCode::invalid_input, "no entry for {} (pp {}, tg {}, pl {})", test.name(), test.n_prompt, test.n_gen,
              test.n_sequences);
}

Result<PeerBench> PeerBench::find(const std::string& command, std::string_view expected) {
  std::vector<std::string> words = CLI::detail::split_up(command);
  std::erase(words, "");
  if (words.empty()) return fail(ErrorCode::invalid_input, "--against: no program given; expected {}", expected);
  ZINC_TRY(lookup, run_process({.argv = {"sh", "-c", "command -v \"$0\"", words[0]}}));
  if (lookup.exit_code != 0) {
    return fail(ErrorCode::not_found, "--against: program {} not found; expected {}", words[0], expected);
  }
  return PeerBench(std::move(words));
}

Result<std::string> PeerBench::run(const std::vector<std::string>& arguments, const std::string& test) const {
  Process process{.argv = command_};
  process.argv.insert(process.argv.end(), arguments.begin(), arguments.end());
  ZINC_TRY(end, run_process(process));
  if (end.exit_code == 0) return std::move(end.out);
  return fail(ErrorCode::invalid_input, "--against: {} exited with code {} at {}: {}", command_[0], end.exit_code, test,
              last_line(end.err.empty() ? end.out : end.err));
}

Result<double> PeerBench::tokens_per_s(const std::string& model, const BenchTest& test, int n_threads) const {
  ZINC_TRY(out, run({"-m", model, "-p", std::to_string(test.n_prompt), "-n", std::to_string(test.n_gen), "-d",
                     std::to_string(test.depth), "-r", "1", "-t", std::to_string(n_threads), "-o", "json"},
                    test.name()));
  const Result<double> rate = read_peer_speed(out, test);
  if (rate.ok()) return rate;
  return fail(ErrorCode::invalid_input, "--against: {}: output is not llama-bench JSON (-o json): {}", command_[0],
              rate.error().message);
}

Result<BatchTimes> PeerBench::batch_times(const std::string& model, const BatchTest& test, int n_threads) const {
  ZINC_TRY(out, run({"-m", model, "-c", std::to_string(test.n_kv()), "-npp", std::to_string(test.n_prompt), "-ntg",
                     std::to_string(test.n_gen), "-npl", std::to_string(test.n_sequences), "-t",
                     std::to_string(n_threads), "--output-format", "jsonl"},
                    test.name()));
  const Result<BatchTimes> times = read_peer_times(out, test);
  if (times.ok()) return times;
  return fail(ErrorCode::invalid_input,
              "--against: {}: output is not that of llama-batched-bench (--output-format jsonl): {}", command_[0],
              times.error().message);
}

}  // namespace zinc
