// A model file loaded on a backend: file, graph, weights. Movable; must outlive everything created from it.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "backend/backend.h"
#include "gguf/gguf_file.h"
#include "model/model.h"

namespace zinc {

struct LoadOptions {
  std::string backend;                // empty: the default backend
  int n_threads = 0;                  // 0: one per core
  size_t memory_limit = 0;            // bytes the model may use in total; 0: all free memory
  const Format* kv_format = nullptr;  // nullptr: the backend's default
  Draft draft = Draft::skip;
  std::string chat_template = {};  // replaces the file's chat template; empty: the file's own
};

class ModelInstance {
 public:
  static Result<ModelInstance> load(const std::filesystem::path& path, const LoadOptions& options);

  const GgufFile& file() const { return *file_; }
  const Model& model() const { return *model_; }
  Backend& backend() const { return *backend_; }
  std::string_view backend_name() const { return backend_info_->name; }
  const BackendInfo& backend_info() const { return *backend_info_; }
  DeviceWeights& weights() const { return *weights_; }
  const Format& kv_format() const { return *kv_format_; }
  size_t memory_limit() const { return memory_limit_; }
  const std::string& chat_template() const { return chat_template_; }  // replaces the file's; empty: the file's own

 private:
  ModelInstance() = default;
  std::unique_ptr<GgufFile> file_;  // pointers, because graphs and plans refer to them across moves
  std::unique_ptr<Model> model_;
  std::unique_ptr<Backend> backend_;
  const BackendInfo* backend_info_ = nullptr;
  std::unique_ptr<DeviceWeights> weights_;
  const Format* kv_format_ = nullptr;
  size_t memory_limit_ = 0;
  std::string chat_template_;
};

}  // namespace zinc
