#include "cli/speculation_report.h"

#include "cli/align_columns.h"

namespace zinc {
namespace {

struct SpeculationFigures {
  Samples plain, drafted, speedup;  // tokens per second, of all sequences together; their ratio
  uint64_t n_drafted = 0, n_accepted = 0;
};

SpeculationFigures figures_of(const SpeculationRow& row) {
  SpeculationFigures figures;
  const double n_tokens = static_cast<double>(row.test.n_gen) * row.test.n_sequences;
  for (const SpeculationTimes& times : row.rounds) {
    figures.plain.values.push_back(n_tokens / times.plain_s);
    figures.drafted.values.push_back(n_tokens / times.drafted_s);
    figures.speedup.values.push_back(times.speedup());
    figures.n_drafted += times.n_drafted;
    figures.n_accepted += times.n_accepted;
  }
  return figures;
}

std::string row_line(const SpeculationRun& run, const SpeculationRow& row) {
  const SpeculationFigures figures = figures_of(row);
  const SpeculationTest& test = row.test;
  return conditions_cells(run) +
         fmt::format(" {} | {:.2g} | {} | {} | {} | {:.2f} | {:.2f} | {:.3f} | {:.1f} % | {} / {} |\n", run.drafter,
                     test.acceptance, test.n_prompt, test.n_gen, test.n_sequences, figures.plain.median(),
                     figures.drafted.median(), figures.speedup.median(), figures.speedup.spread() * 100,
                     figures.n_accepted, figures.n_drafted);
}

json::object row_json(const SpeculationRun& run, const SpeculationRow& row) {
  const SpeculationFigures figures = figures_of(row);
  json::object entry{{"drafter", run.drafter},
                     {"acceptance", row.test.acceptance},
                     {"n_prompt", row.test.n_prompt},
                     {"n_gen", row.test.n_gen},
                     {"n_sequences", row.test.n_sequences},
                     {"plain_tokens_per_second", figures.plain.median()},
                     {"drafted_tokens_per_second", figures.drafted.median()},
                     {"speedup", figures.speedup.median()},
                     {"speedup_spread", figures.speedup.spread()},
                     {"speedup_samples", values_of(figures.speedup)},
                     {"n_drafted", figures.n_drafted},
                     {"n_accepted", figures.n_accepted}};
  add_conditions(run, entry);
  return entry;
}

}  // namespace

std::string speculation_markdown(std::span<const SpeculationRun> runs) {
  std::string text =
      "| model | backend | threads | drafter | acceptance | PP | TG | B | plain t/s | drafted t/s | speedup | spread | "
      "accepted / drafted |\n|---|---|--:|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n";
  for (const SpeculationRun& run : runs) {
    for (const SpeculationRow& row : run.rows) text += row_line(run, row);
  }
  text += "\n";
  for (const SpeculationRun& run : runs)
    text += fmt::format("{} ({}): ", run.backend, run.device) + conditions_line(run);
  return text;
}

std::string speculation_table(std::span<const SpeculationRun> runs) {
  return align_columns(speculation_markdown(runs));
}

json::array speculation_json(std::span<const SpeculationRun> runs) {
  json::array entries;
  for (const SpeculationRun& run : runs) {
    for (const SpeculationRow& row : run.rows) entries.push_back(row_json(run, row));
  }
  return entries;
}

std::vector<std::string> speculation_warnings(const SpeculationRun& run) {
  std::vector<std::string> warnings = clock_warnings(run);
  for (const SpeculationRow& row : run.rows) add_spread_warning(row.test.name(), figures_of(row).speedup, warnings);
  return warnings;
}

}  // namespace zinc
