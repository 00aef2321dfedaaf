#include "cli/speculation_option.h"

#include <fmt/core.h>

namespace zinc {

CLI::Option* declare_speculation_option(CLI::App& app, SpeculationOptions& options) {
  const auto parse = [&options](const std::string& text) {
    const auto has_file = [&](std::string_view prefix, SpeculationMode mode) {
      if (!text.starts_with(prefix) || text.size() == prefix.size()) return false;
      options.mode = mode;
      options.draft_model = text.substr(prefix.size());
      return true;
    };
    if (has_file("draft:", SpeculationMode::draft) || has_file("mtp:", SpeculationMode::mtp)) return;
    const std::optional<SpeculationMode> mode = parse_speculation_mode(text);
    if (!mode || *mode == SpeculationMode::draft) {
      throw CLI::ValidationError(
          "--speculate",
          fmt::format("'{}' is not valid; expected auto, off, ngram, mtp, mtp:FILE or draft:MODEL", text));
    }
    options.mode = *mode;
    options.draft_model.clear();
  };
  return app
      .add_option_function<std::string>(
          "--speculate", parse,
          "speculative decoding: auto (where it is measured to pay), off, ngram (prompt "
          "lookup), mtp (the model's own block), mtp:FILE (its separate MTP file), draft:MODEL")
      ->option_text("MODE")
      ->default_str("auto");
}

}  // namespace zinc
