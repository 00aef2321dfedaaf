// A model file on a backend: file, graph, weights. Opened, it takes no memory of the device, and its memory can be
// measured (model_memory.h); uploaded, it can run. Movable; must outlive everything created from it.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

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

// The model on Backend::without_memory.
struct ModelLayout {
  std::unique_ptr<Backend> backend;
  std::unique_ptr<DeviceWeights> weights;
};

class ModelInstance {
 public:
  // Fails if the weights alone do not fit the memory limit.
  static Result<ModelInstance> open(const std::filesystem::path& path, const LoadOptions& options);
  // A further model on the backend of `other`, with its KV cache format and memory limit: a draft model.
  static Result<ModelInstance> open_beside(const ModelInstance& other, const std::filesystem::path& path);
  // Adds the draft graph of a separate MTP file, which is uploaded with the model. REQUIRES: not uploaded.
  Status add_mtp_file(const std::filesystem::path& path);
  Status upload();  // no effect if it is uploaded
  // Both.
  static Result<ModelInstance> load(const std::filesystem::path& path, const LoadOptions& options);

  const GgufFile& file() const { return *file_; }
  const GgufFile* mtp_file() const { return mtp_file_.get(); }  // nullptr: none was added
  const Model& model() const { return *model_; }
  Backend& backend() const { return *backend_; }
  std::string_view backend_name() const { return backend_info_->name; }
  const BackendInfo& backend_info() const { return *backend_info_; }
  // BackendInfo::scan_chunk_tokens if the model has recurrent layers, else 1.
  int scan_chunk_tokens() const;
  DeviceWeights& weights() const { return *weights_; }  // REQUIRES: uploaded
  const ModelLayout& layout() const { return layout_; }
  const Format& kv_format() const { return *kv_format_; }
  size_t memory_limit() const { return memory_limit_; }
  // " on NVIDIA H200", for messages about memory; empty: in the host's memory.
  const std::string& device_text() const { return device_text_; }
  const std::string& chat_template() const { return chat_template_; }  // replaces the file's; empty: the file's own

 private:
  ModelInstance() = default;
  Status read(const std::filesystem::path& path, Draft draft);
  Status lay_out(const std::filesystem::path& path);
  std::vector<const Graph*> graphs() const;
  void release_file_pages() const;
  std::unique_ptr<GgufFile> file_, mtp_file_;  // pointers, because graphs and plans refer to them across moves
  std::unique_ptr<Model> model_;
  std::shared_ptr<Backend> backend_;  // of this model, and of those opened beside it
  const BackendInfo* backend_info_ = nullptr;
  ModelLayout layout_;
  std::unique_ptr<DeviceWeights> weights_;
  const Format* kv_format_ = nullptr;
  size_t memory_limit_ = 0;
  std::string device_text_;
  std::string chat_template_;
};

}  // namespace zinc
