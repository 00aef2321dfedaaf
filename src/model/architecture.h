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

// A family's separate MTP file: a small decoder with queries only, which reads the cache of the model that it drafts
// for. Input: the target's token embedding and hidden state; output: logits and a hidden state of the target's width.
struct MtpFileArchitecture {
  std::string_view gguf_name;
  // The builder has the target's graph.
  void (*build)(const ModelConfig&, const ModelConfig& target, Metadata& metadata, GraphBuilder&);
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
  const MtpFileArchitecture* mtp_file = nullptr;  // nullptr: the family has none
};

extern const Architecture* const kArchitectures[];  // every family, terminated by nullptr

}  // namespace zinc
