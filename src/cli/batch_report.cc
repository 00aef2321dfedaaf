#include "cli/batch_report.h"

#include "base/format_memory.h"
#include "cli/align_columns.h"

namespace zinc {
namespace {

// Seconds and tokens per second of a phase, one value for each round.
struct Phase {
  Samples seconds, rates;

  void add(double s, int64_t n_tokens) {
    seconds.values.push_back(s);
    rates.values.push_back(static_cast<double>(n_tokens) / s);
  }
};

struct BatchFigures {
  Phase prefill, decode, total;
};

BatchFigures figures_of(const BatchTest& test, std::span<const BatchTimes> rounds) {
  BatchFigures figures;
  for (const BatchTimes& times : rounds) {
    figures.prefill.add(times.prefill_s, test.n_prompt_total());
    figures.decode.add(times.decode_s, test.n_gen_total());
    figures.total.add(times.prefill_s + times.decode_s, test.n_kv());
  }
  return figures;
}

std::string phase_cells(const Phase& phase) {
  return fmt::format(" {:.3f} | {:.2f} |", phase.seconds.median(), phase.rates.median());
}

std::string peer_cells(const Phase& own, const Phase& peer) {
  return fmt::format(" {:.2f} | {:.2f} |", peer.rates.median(), own.rates.median() / peer.rates.median());
}

std::string batch_row_line(const BatchRun& run, const BatchRow& row) {
  const BatchTest& test = row.test;
  const BatchFigures own = figures_of(test, row.rounds);
  std::string line = conditions_cells(run);
  line += fmt::format(" {} | {} | {} | {} |", test.n_prompt, test.n_gen, test.n_sequences, test.n_kv());
  for (const Phase* phase : {&own.prefill, &own.decode, &own.total}) line += phase_cells(*phase);
  line += fmt::format(" {:.1f} % |", own.total.rates.spread() * 100);
  if (row.peer_rounds.empty()) return line + "\n";
  const BatchFigures peer = figures_of(test, row.peer_rounds);
  return line + peer_cells(own.prefill, peer.prefill) + peer_cells(own.decode, peer.decode) +
         peer_cells(own.total, peer.total) + "\n";
}

void add_phase(std::string_view name, const Phase& phase, json::object& entry) {
  const std::string prefix(name);
  entry[prefix + "_seconds"] = phase.seconds.median();
  entry[prefix + "_tokens_per_second"] = phase.rates.median();
  entry[prefix + "_spread"] = phase.rates.spread();
  entry[prefix + "_seconds_samples"] = values_of(phase.seconds);
}

json::object figures_json(const BatchFigures& figures) {
  json::object entry;
  add_phase("prefill", figures.prefill, entry);
  add_phase("decode", figures.decode, entry);
  add_phase("total", figures.total, entry);
  return entry;
}

json::object batch_row_json(const BatchRun& run, const BatchRow& row) {
  const BatchFigures own = figures_of(row.test, row.rounds);
  json::object entry = figures_json(own);
  entry["n_prompt"] = row.test.n_prompt;
  entry["n_gen"] = row.test.n_gen;
  entry["n_sequences"] = row.test.n_sequences;
  entry["n_kv_tokens"] = row.test.n_kv();
  entry["weight_bytes"] = run.weight_bytes;
  entry["cache_bytes"] = run.cache_bytes;
  add_conditions(run, entry);
  if (const std::vector<std::string> warnings = batch_warnings(run); !warnings.empty())
    entry["warnings"] = json::array(warnings.begin(), warnings.end());
  if (row.peer_rounds.empty()) return entry;
  const BatchFigures peer = figures_of(row.test, row.peer_rounds);
  entry["peer"] = figures_json(peer);
  entry["prefill_ratio"] = own.prefill.rates.median() / peer.prefill.rates.median();
  entry["decode_ratio"] = own.decode.rates.median() / peer.decode.rates.median();
  entry["total_ratio"] = own.total.rates.median() / peer.total.rates.median();
  return entry;
}

}  // namespace

std::string batch_markdown(std::span<const BatchRun> runs) {
  const bool has_peer = !runs.empty() && !runs[0].rows.empty() && !runs[0].rows[0].peer_rounds.empty();
  std::string text =
      "| model | backend | threads | PP | TG | B | N_KV | T_PP s | S_PP t/s | T_TG s | S_TG t/s | T s | S t/s | spread "
      "|";
  text += has_peer ? " peer S_PP | ratio | peer S_TG | ratio | peer S | ratio |\n" : "\n";
  text += "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|";
  text += has_peer ? "--:|--:|--:|--:|--:|--:|\n" : "\n";
  for (const BatchRun& run : runs) {
    for (const BatchRow& row : run.rows) text += batch_row_line(run, row);
  }
  text += "\n";
  for (const BatchRun& run : runs) {
    text += fmt::format("{} ({}): weights {}, KV cache {}\n", run.backend, run.device, format_memory(run.weight_bytes),
                        format_memory(run.cache_bytes)) +
            conditions_line(run);
  }
  return text;
}

std::string batch_table(std::span<const BatchRun> runs) { return align_columns(batch_markdown(runs)); }

json::array batch_json(std::span<const BatchRun> runs) {
  json::array entries;
  for (const BatchRun& run : runs) {
    for (const BatchRow& row : run.rows) entries.push_back(batch_row_json(run, row));
  }
  return entries;
}

std::vector<std::string> batch_warnings(const BatchRun& run) {
  std::vector<std::string> warnings = clock_warnings(run);
  for (const BatchRow& row : run.rows) {
    const BatchFigures figures = figures_of(row.test, row.rounds);
    add_spread_warning(row.test.name() + ", prefill", figures.prefill.rates, warnings);
    add_spread_warning(row.test.name() + ", decode", figures.decode.rates, warnings);
  }
  return warnings;
}

}  // namespace zinc
