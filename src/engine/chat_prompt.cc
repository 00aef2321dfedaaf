#include "engine/chat_prompt.h"

namespace zinc {

Result<ChatPrompt> ChatPrompt::load(const GgufFile& file, Tokenizer tokenizer) {
  constexpr std::string_view kKey = "tokenizer.chat_template";
  if (file.find(kKey) == nullptr) return ChatPrompt(ChatTemplate::chatml(), std::move(tokenizer));
  ZINC_TRY(source, file.get<std::string_view>(kKey));
  ZINC_TRY(compiled, ChatTemplate::compile(source));
  return ChatPrompt(std::move(compiled), std::move(tokenizer));
}

Result<std::vector<TokenId>> ChatPrompt::tokens(ChatRequestData request) const {
  const auto text_of = [this](std::optional<TokenId> id) { return id ? std::string(tokenizer_.bytes(*id)) : ""; };
  request.bos_token = text_of(tokenizer_.bos());
  request.eos_token = text_of(tokenizer_.eos());
  ZINC_TRY(rendered, template_.render(request));
  std::vector<TextSegment> segments;
  for (const PromptSegment& segment : rendered.segments) {
    segments.push_back({.text = segment.text, .parse_special = !segment.from_input});
  }
  std::vector<TokenId> out;
  tokenizer_.encode(segments, true, out);
  return out;
}

}  // namespace zinc
