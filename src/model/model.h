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
  std::optional<Graph> draft;      // the MTP block, where the file has one
  std::vector<LayerCache> caches;  // of both graphs, per block of the file
};

// An unknown architecture is an error that names it and lists those there are.
Result<Model> read_model(const GgufFile& file);

}  // namespace zinc
