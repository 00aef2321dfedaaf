// One record per model family, found by the file's general.architecture. A file model/arch/<stem>.cc defines
// k_architecture_<stem>; the folder listing makes kArchitectures, so adding a family touches nothing else.
#pragma once

#include <string_view>

#include "graph/graph_builder.h"
#include "model/metadata.h"

namespace zinc {

// What code outside the architecture's file must know.
struct ModelConfig {
  int64_t vocab_size = 0;
  int64_t dim = 0;
  int n_layers = 0;         // blocks of the file, draft blocks included
  int64_t max_context = 0;  // positions the model was trained for
};

struct Architecture {
  std::string_view gguf_name;
  // Describes the whole forward pass, once. Errors stay in `metadata` and the builder.
  void (*build)(const ModelConfig&, Metadata& metadata, GraphBuilder&);
  // Describes the block that predicts one token further from the hidden state; nullptr: the family has none.
  void (*build_draft)(const ModelConfig&, Metadata& metadata, GraphBuilder&) = nullptr;
  // Whether this file holds a draft block. REQUIRES: build_draft.
  bool (*has_draft)(Metadata& metadata) = nullptr;
};

extern const Architecture* const kArchitectures[];  // every family, ended by nullptr

}  // namespace zinc
