// One record per model family whose checkpoints can be converted: the tensors and keys of its GGUF file. A file
// convert/arch/<stem>.cc defines k_family_<stem>; kFamilies is generated from the folder listing.
#pragma once

#include <span>
#include <string_view>

#include "convert/model_mapping.h"

namespace zinc {

// What is written for a SentencePiece vocabulary.
enum class TokenizerKind : uint8_t {
  standard,
  no_space_prefix,  // as standard, without a space in front of the text
  gemma4,           // merges instead of scores
};

struct Family {
  std::string_view gguf_name;                     // of the architecture in src/model/arch
  std::span<const std::string_view> class_names;  // in "architectures" of config.json
  // Adds metadata and tensors. Errors stay in the mapping.
  void (*map)(ModelMapping&);
  TokenizerKind tokenizer = TokenizerKind::standard;
};

extern const Family* const kFamilies[];  // every family, ended by nullptr

}  // namespace zinc
