// A ChatModel without an engine: the vocabulary of a tiny model with the chat template and the output format of a
// family.
#pragma once

#include <filesystem>
#include <string>

#include "base/mapped_file.h"
#include "chat/chat_model.h"

namespace zinc {

inline ChatModel family_model(const std::filesystem::path& source_folder, std::string_view family,
                              std::string name = "scripted", int context = 4096) {
  const GgufFile file = std::move(GgufFile::open(source_folder / "tests/data/oracle/models/qwen3-q8_0.gguf").value());
  const Tokenizer tokenizer = Tokenizer::load(file).value();
  const MappedFile opened =
      std::move(MappedFile::open(source_folder / "tests/data/templates" / family / "template.jinja").value());
  const std::string_view source(reinterpret_cast<const char*>(opened.bytes().data()), opened.bytes().size());
  return {.name = std::move(name),
          .tokenizer = tokenizer,
          .prompt = ChatPrompt(ChatTemplate::compile(source).value(), tokenizer),
          .tool_format = find_tool_format(family),
          .limits = {.context = context, .max_sequences = 4, .n_vocab = tokenizer.n_vocab(), .embedding_dim = 2}};
}

}  // namespace zinc
