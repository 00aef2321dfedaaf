#include "chat/chat_output.h"

#include <algorithm>

namespace zinc {

ChatOutput::ChatOutput(const ChatModel& model, const ChatRequest& request, const ParserOptions& parser)
    : include_reasoning_(request.include_reasoning),
      include_stop_(request.include_stop),
      allows_parallel_calls_(request.allows_parallel_calls()) {
  if (request.is_chat()) parser_.emplace(*model.tool_format, parser);
}

std::vector<Delta> ChatOutput::push(std::string_view text) {
  if (parser_) return without_excluded(parser_->push(text));
  if (text.empty()) return {};
  return {ContentDelta{std::string(text)}};
}

std::vector<Delta> ChatOutput::finish(const Outcome& outcome) {
  std::vector<Delta> deltas;
  if (include_stop_ && !is_complete_ && outcome.reason == StopReason::stop_string) deltas = push(outcome.stop_string);
  if (!parser_) return deltas;
  for (Delta& delta : without_excluded(parser_->finish())) deltas.push_back(std::move(delta));
  return deltas;
}

std::vector<Delta> ChatOutput::without_excluded(std::vector<Delta> deltas) {
  std::vector<Delta> out;
  for (Delta& delta : deltas) {
    if (is_complete_) break;
    is_complete_ = std::holds_alternative<CallEnd>(delta) && !allows_parallel_calls_;
    if (include_reasoning_ || !std::holds_alternative<ReasoningDelta>(delta)) out.push_back(std::move(delta));
  }
  return out;
}

}  // namespace zinc
