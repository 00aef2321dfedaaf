#include "chat/chat_model.h"

namespace zinc {

Result<ChatModel> ChatModel::load(const Engine& engine, std::string name) {
  const ModelInstance& model = engine.model();
  ZINC_TRY(prompt, ChatPrompt::load(model.file(), engine.tokenizer(), model.chat_template()));
  const ToolFormat& format = detect_tool_format(prompt.chat_template().source(), model.model().architecture->gguf_name);
  return ChatModel{.name = std::move(name),
                   .tokenizer = engine.tokenizer(),
                   .prompt = std::move(prompt),
                   .tool_format = &format,
                   .limits = engine.limits()};
}

}  // namespace zinc
