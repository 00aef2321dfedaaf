// Renders messages into a model's prompt with the chat template of its file and tokenizes it. Text of a message never
// becomes a control token; text of the template may. Immutable; any thread.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "gguf/gguf_file.h"
#include "text/chat_template.h"
#include "text/thinking_support.h"
#include "text/tokenizer.h"

namespace zinc {

class ChatPrompt {
 public:
  ChatPrompt(ChatTemplate chat_template, Tokenizer tokenizer)
      : template_(std::move(chat_template)), tokenizer_(std::move(tokenizer)) {}
  // `source` if it is not empty, else the file's template, or ChatML if it has none.
  static Result<ChatPrompt> load(const GgufFile& file, Tokenizer tokenizer, std::string_view source = {});

  const ChatTemplate& chat_template() const { return template_; }
  // The thinking modes of the template, in the output format of the model's family.
  ThinkingSupport thinking_support(const ToolFormat& format) const {
    return ThinkingSupport::detect(template_, format);
  }
  // Sets the request's BOS and EOS tokens from the model, and its time to now.
  Result<RenderedPrompt> render(ChatTemplateInputs request) const;
  std::vector<TokenId> encode(const RenderedPrompt& prompt) const;
  Result<std::vector<TokenId>> tokens(ChatTemplateInputs request) const;  // both

 private:
  ChatTemplate template_;
  Tokenizer tokenizer_;
};

}  // namespace zinc
