#include "chat/chat_prompt.h"

#include <chrono>
#include <ctime>

namespace zinc {
namespace {

jinja::LocalTime local_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::localtime_r(&now, &parts);
  return jinja::LocalTime(std::chrono::seconds(now + parts.tm_gmtoff));
}

}  // namespace

Result<ChatPrompt> ChatPrompt::load(const GgufFile& file, Tokenizer tokenizer, std::string_view source) {
  constexpr std::string_view kKey = "tokenizer.chat_template";
  if (source.empty() && file.find(kKey) == nullptr) return ChatPrompt(ChatTemplate::chatml(), std::move(tokenizer));
  if (source.empty()) {
    ZINC_TRY(own, file.get<std::string_view>(kKey));
    source = own;
  }
  ZINC_TRY(compiled, ChatTemplate::compile(source));
  return ChatPrompt(std::move(compiled), std::move(tokenizer));
}

Result<RenderedPrompt> ChatPrompt::render(ChatTemplateInputs request) const {
  const auto text_of = [this](std::optional<TokenId> id) { return id ? std::string(tokenizer_.bytes(*id)) : ""; };
  request.bos_token = text_of(tokenizer_.bos());
  request.eos_token = text_of(tokenizer_.eos());
  request.now = local_now();
  return template_.render(request);
}

std::vector<TokenId> ChatPrompt::encode(const RenderedPrompt& prompt) const {
  std::vector<TextSegment> segments;
  for (const PromptSegment& segment : prompt.segments) {
    segments.push_back({.text = segment.text, .parse_special = !segment.from_input});
  }
  std::vector<TokenId> out;
  tokenizer_.encode(segments, true, out);
  return out;
}

Result<std::vector<TokenId>> ChatPrompt::tokens(ChatTemplateInputs request) const {
  ZINC_TRY(rendered, render(std::move(request)));
  return encode(rendered);
}

}  // namespace zinc
