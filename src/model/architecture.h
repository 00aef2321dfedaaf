// One record per model family, looked up by the file's general.architecture. A file model/arch/<stem>.cc defines
// k_architecture_<stem>; kArchitectures is generated from the folder listing, so adding a family touches no other file.
#pragma once

#include <string_view>

#include "graph/graph_builder.h"
#include "model/metadata.h"

namespace zinc {

// Sizes used outside the architecture's file.
struct ModelConfig {
  int64_t vocab_size = 0;
  int64_t dim = 0;
  int n_layers = 0;         // blocks of the file, including draft blocks
  int64_t max_context = 0;  // positions the model was trained for
};

struct Architecture {
  std::string_view gguf_name;
  // Builds the graph of the forward pass. Errors stay in `metadata` and the builder.
  void (*build)(const ModelConfig&, Metadata& metadata, GraphBuilder&);
  // Builds the graph of the draft (MTP) block, which predicts one token further from the hidden state; nullptr: the
  // family has none.
  void (*build_draft)(const ModelConfig&, Metadata& metadata, GraphBuilder&) = nullptr;
  // Whether this file has a draft block. REQUIRES: build_draft.
  bool (*has_draft)(Metadata& metadata) = nullptr;
};

extern const Architecture* const kArchitectures[];  // every family, terminated by nullptr

}  // namespace zinc
