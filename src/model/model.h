// A model file understood: its sizes, its graph, and what it must remember. The GgufFile must outlive it.
#pragma once

#include <optional>
#include <vector>

#include "model/architecture.h"

namespace zinc {

struct Model {
  const Architecture* architecture = nullptr;
  ModelConfig config;
  Graph graph;
  std::optional<Graph> draft;      // the MTP block, where it was asked for and the file has one
  std::vector<LayerCache> caches;  // of both graphs, per block of the file
};

enum class Draft : uint8_t { left_out, read };  // no engine drafts yet: only tests and `zinc graph` ask for it

// An unknown architecture is an error that names it and lists those there are.
Result<Model> read_model(const GgufFile& file, Draft draft = Draft::left_out);

}  // namespace zinc
