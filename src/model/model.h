// A parsed model file: its sizes, its graph and its caches. The GgufFile must outlive it.
#pragma once

#include <optional>
#include <vector>

#include "model/architecture.h"

namespace zinc {

struct Model {
  const Architecture* architecture = nullptr;
  ModelConfig config;
  Graph graph;
  std::optional<Graph> draft;      // the MTP block, if requested and present in the file, or that of an MTP file
  std::vector<LayerCache> caches;  // of both graphs, per block of the file
};

// Positions of the longest sequence, with an extended context if its RoPE can extend it (graph/rope.h).
int64_t longest_context(const Model& model);

enum class Draft : uint8_t { skip, load };

// An unknown architecture is an error that lists the supported ones.
Result<Model> read_model(const GgufFile& file, Draft draft = Draft::skip);

// The draft graph of a separate MTP file. It has no keys and values of its own: it reads those of `target`. Both files
// must outlive it.
Result<Graph> read_mtp_file(const GgufFile& file, const Model& target);

}  // namespace zinc
