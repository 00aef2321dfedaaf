#include "engine/thinking_budget.h"

#include <fmt/format.h>

namespace zinc {

ThinkingBudget make_thinking_budget(const ToolFormat& format, const Tokenizer& tokenizer,
                                    const ThinkingBudgetOptions& options) {
  const ThinkingMarkers& markers = format.thinking;
  if (markers.close.empty()) return {};
  ThinkingBudget out{.open_tag = std::string(markers.open),
                     .close_tag = std::string(markers.close),
                     .starts_open = options.starts_open,
                     .max_tokens = options.max_tokens,
                     .forced_end = {}};
  if (options.max_tokens < 0) return out;
  const bool may_call = options.may_call_tools && !markers.before_answer_or_call.empty();
  const std::string_view next = may_call ? markers.before_answer_or_call : markers.before_answer;
  tokenizer.encode(fmt::format("{}{}{}", markers.early_end, markers.close, next),
                   {.add_special = false, .parse_special = true}, out.forced_end);
  return out;
}

}  // namespace zinc
