// The tokenizer of a checkpoint as GGUF metadata: tokenizer.model, or tokenizer.json with a BPE or Unigram vocabulary;
// added and special tokens, the pre-tokenizer's name, the chat template.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"
#include "convert/checkpoint_config.h"
#include "convert/family.h"
#include "gguf/gguf_writer.h"

namespace zinc {

struct TokenizerSource {
  std::filesystem::path folder;
  TokenizerKind kind = TokenizerKind::standard;
  int64_t n_vocab = 0;       // rows of the token embedding
  std::string pretokenizer;  // tokenizer.ggml.pre; empty: found by the rules in tokenizer.json
};

Status set_tokenizer_keys(const TokenizerSource& source, const CheckpointConfig& config, GgufHeader& header,
                          std::vector<std::string>& warnings);

// The value of tokenizer.ggml.pre for "pre_tokenizer" of a tokenizer.json; empty: unknown. ignore_merges: of its model.
std::string identify_pretokenizer(const json::value& pre_tokenizer, bool ignore_merges);

}  // namespace zinc
