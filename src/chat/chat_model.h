// What a conversation needs of a loaded model: tokenizer, chat template, output format, thinking modes, limits.
// Immutable; any thread.
#pragma once

#include <memory>
#include <string>

#include "chat/chat_prompt.h"
#include "constrain/constraint_cache.h"
#include "engine/engine.h"
#include "text/tool_format.h"

namespace zinc {

struct ChatModel {
  std::string name;
  Tokenizer tokenizer;
  ChatPrompt prompt;
  const ToolFormat* tool_format;
  ThinkingSupport thinking = prompt.thinking_support(*tool_format);
  std::shared_ptr<ConstraintCache> constraints = std::make_shared<ConstraintCache>(tokenizer);
  EngineLimits limits = {};
  // For the default DRY breakers; nullptr: each request searches them, which takes milliseconds.
  std::shared_ptr<const TokenSet> default_dry_breakers = {};

  static Result<ChatModel> load(const Engine& engine, std::string name);
};

}  // namespace zinc
