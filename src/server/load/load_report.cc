#include "server/load/load_report.h"

namespace zinc {
namespace {

std::string cells_ms(const Percentiles& p) {
  return fmt::format(" {:.1f} | {:.1f} | {:.1f} |", p.p50 * 1e3, p.p95 * 1e3, p.p99 * 1e3);
}

json::object json_of(const Percentiles& p) {
  return {{"p50", p.p50}, {"p95", p.p95}, {"p99", p.p99}, {"max", p.largest}};
}

double ratio_to_sequential(const LoadResult& run) {
  return run.baseline && run.baseline->tokens_per_s > 0 ? run.tokens_per_s() / run.baseline->tokens_per_s : 0;
}

}  // namespace

std::string load_markdown(std::span<const LoadResult> runs) {
  std::string out =
      "| server | requests | failed | tok/s | req/s | TTFT ms p50 | p95 | p99 | ITL ms p50 | p95 | p99 "
      "| "
      "end-to-end ms p50 | p95 | p99 | prompt tokens | cached |\n"
      "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n";
  std::string notes;
  for (const LoadResult& run : runs) {
    const double answered = static_cast<double>(run.n_requests - run.n_failed);
    out += fmt::format("| {} | {} | {} | {:.1f} | {:.2f} |", run.target, run.n_requests, run.n_failed,
                       run.tokens_per_s(), run.seconds > 0 ? answered / run.seconds : 0);
    out += cells_ms(run.first_token_s) + cells_ms(run.inter_token_s) + cells_ms(run.whole_s);
    out += fmt::format(" {} | {} |\n", run.n_prompt, run.n_cached);
    if (run.baseline) {
      notes += fmt::format("{}: sequential {:.1f} tok/s, speedup under load {:.2f}x; {} of {} outputs equal\n",
                           run.target, run.baseline->tokens_per_s, ratio_to_sequential(run), run.baseline->n_equal,
                           run.baseline->n_compared);
    }
    if (run.n_failed > 0) notes += fmt::format("{}: first error: {}\n", run.target, run.first_error);
  }
  return out + (notes.empty() ? "" : "\n" + notes);
}

json::array load_json(std::span<const LoadResult> runs) {
  json::array out;
  for (const LoadResult& run : runs) {
    json::object entry{{"server", run.target},
                       {"requests", run.n_requests},
                       {"failed", run.n_failed},
                       {"seconds", run.seconds},
                       {"tokens_per_second", run.tokens_per_s()},
                       {"prompt_tokens", run.n_prompt},
                       {"cached_tokens", run.n_cached},
                       {"completion_tokens", run.n_completion}};
    entry["first_token_s"] = json_of(run.first_token_s);
    entry["inter_token_s"] = json_of(run.inter_token_s);
    entry["whole_s"] = json_of(run.whole_s);
    if (run.n_failed > 0) entry["first_error"] = run.first_error;
    if (run.baseline) {
      entry["alone"] = {{"tokens_per_second", run.baseline->tokens_per_s},
                        {"ratio", ratio_to_sequential(run)},
                        {"equal", run.baseline->n_equal},
                        {"compared", run.baseline->n_compared}};
    }
    out.push_back(std::move(entry));
  }
  return out;
}

std::string stall_markdown(std::span<const StallResult> runs) {
  std::string out =
      "| server | streams | prompt tokens | ITL ms p50 | max | during prefill p50 | p99 | max | longest stall "
      "ms | stall / p50 | prefill TTFT s |\n"
      "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n";
  for (const StallResult& run : runs) {
    out += fmt::format("| {} | {} | {} | {:.1f} | {:.1f} | {:.1f} | {:.1f} | {:.1f} | {:.1f} | {:.2f} | {:.1f} |\n",
                       run.target, run.n_streams, run.n_prompt, run.baseline_itl_s.p50 * 1e3,
                       run.baseline_itl_s.largest * 1e3, run.prefill_itl_s.p50 * 1e3, run.prefill_itl_s.p99 * 1e3,
                       run.prefill_itl_s.largest * 1e3, run.longest_stall_s * 1e3, run.ratio(), run.first_token_s);
  }
  return out;
}

json::array stall_json(std::span<const StallResult> runs) {
  json::array out;
  for (const StallResult& run : runs) {
    json::object entry{{"server", run.target},          {"streams", run.n_streams},
                       {"prompt_tokens", run.n_prompt}, {"longest_stall_s", run.longest_stall_s},
                       {"stall_ratio", run.ratio()},    {"first_token_s", run.first_token_s}};
    entry["baseline_itl_s"] = json_of(run.baseline_itl_s);
    entry["prefill_itl_s"] = json_of(run.prefill_itl_s);
    out.push_back(std::move(entry));
  }
  return out;
}

}  // namespace zinc
