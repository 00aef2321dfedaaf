#include "cli/speculation_option.h"

#include <fmt/core.h>

namespace zinc {

void declare_speculation_option(CLI::App& app, SpeculationOptions& options) {
  const auto parse = [&options](const std::string& text) {
    constexpr std::string_view kDraftPrefix = "draft:";
    if (text.starts_with(kDraftPrefix) && text.size() > kDraftPrefix.size()) {
      options.mode = SpeculationMode::draft;
      options.draft_model = text.substr(kDraftPrefix.size());
      return;
    }
    const std::optional<SpeculationMode> mode = parse_speculation_mode(text);
    if (!mode || *mode == SpeculationMode::draft) {
      throw CLI::ValidationError("--speculate",
                                 fmt::format("'{}' is not valid; expected auto, off, ngram, mtp or draft:MODEL", text));
    }
    options.mode = *mode;
  };
  app.add_option_function<std::string>("--speculate", parse,
                                       "speculative decoding: auto (where it is measured to pay), off, ngram (prompt "
                                       "lookup), mtp (the model's own block), draft:MODEL")
      ->option_text("MODE")
      ->default_str("auto");
}

}  // namespace zinc
