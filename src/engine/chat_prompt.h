// Messages become a model's prompt: the chat template of its file, then its tokenizer. What a message says can never
// become a control token; what the template itself writes can. Immutable; any thread may ask.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "gguf/gguf_file.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace zinc {

class ChatPrompt {
 public:
  ChatPrompt(ChatTemplate chat_template, Tokenizer tokenizer)
      : template_(std::move(chat_template)), tokenizer_(std::move(tokenizer)) {}
  // The file's own template, else ChatML.
  static Result<ChatPrompt> load(const GgufFile& file, Tokenizer tokenizer);

  const ChatTemplate& chat_template() const { return template_; }
  // `request` without its begin and end tokens, which are the model's, and without the time, which is that of the call.
  Result<RenderedPrompt> render(ChatRequestData request) const;
  std::vector<TokenId> encode(const RenderedPrompt& prompt) const;
  Result<std::vector<TokenId>> tokens(ChatRequestData request) const;  // both

 private:
  ChatTemplate template_;
  Tokenizer tokenizer_;
};

}  // namespace zinc
