// Models that Ollama already holds on this machine. Its store keeps one JSON manifest per name and tag, and the files
// they name by SHA-256; the model layer is a GGUF. Nothing is copied or changed.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace zinc {

struct OllamaModel {
  std::string host;       // the registry it came from
  std::string name, tag;  // "qwen3", "8b"; outside the library with its namespace: "someone/model"
  std::filesystem::path file;
  uint64_t n_bytes = 0;
};

// Every model whose file is there, by name and tag. Manifests that make no sense are left out. Where two hosts have a
// model of the same name and tag, the names of both begin with the host: "hf.co/someone/model".
std::vector<OllamaModel> list_ollama_models(std::span<const std::filesystem::path> stores);

// By its name as listed, or with the host in any case. An error says what there is instead.
Result<OllamaModel> find_ollama_model(std::span<const std::filesystem::path> stores, const std::string& name,
                                      const std::string& tag);

}  // namespace zinc
