// Models in Ollama's store on this machine: one JSON manifest per name and tag, and blobs named by SHA-256; the model
// layer is a GGUF file. Read-only, nothing is copied.
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

// All models with an existing file, by name and tag. Invalid manifests are skipped. If two hosts have a model of the
// same name and tag, both names get the host as prefix: "hf.co/someone/model".
std::vector<OllamaModel> list_ollama_models(std::span<const std::filesystem::path> stores);

// By its listed name, or with the host prefix. The error suggests alternatives.
Result<OllamaModel> find_ollama_model(std::span<const std::filesystem::path> stores, const std::string& name,
                                      const std::string& tag);

}  // namespace zinc
