#include "cli/model_memory.h"

#include <map>
#include <mutex>

#include "backend/backend.h"
#include "hub/catalog.h"

namespace zinc {
namespace {

namespace fs = std::filesystem;

// Measures each file once: opening one takes tens of milliseconds, and the server's page asks for the list every few
// seconds.
class ModelMeasurer {
 public:
  Result<MemoryNeed> measure(const BackendChoice& backend, const fs::path& file) {
    std::error_code unreadable;
    const Version version{fs::last_write_time(file, unreadable), fs::file_size(file, unreadable)};
    const std::lock_guard lock(mutex_);
    const auto known = measured_.find({backend, file});
    if (known != measured_.end() && known->second.version == version) return known->second.need;
    Result<MemoryNeed> need = lay_out(backend, file);
    if (need.ok()) measured_.insert_or_assign({backend, file}, Measured{version, need.value()});
    return need;
  }

 private:
  struct Version {
    fs::file_time_type modified;
    uintmax_t n_bytes;
    bool operator==(const Version&) const = default;
  };
  struct Measured {
    Version version;
    MemoryNeed need;
  };

  static Result<MemoryNeed> lay_out(const BackendChoice& backend, const fs::path& file) {
    ZINC_TRY(model,
             ModelInstance::open(
                 file, {.backend = backend.name, .memory_limit = kUnlimitedMemory, .kv_format = backend.kv_format}));
    ZINC_TRY(memory, chat_memory(model, kUnlimitedMemory, kCatalogContext));
    return MemoryNeed{.bytes = memory.bytes(), .limit_bytes = least_limit(memory)};
  }

  std::mutex mutex_;
  std::map<std::pair<BackendChoice, fs::path>, Measured> measured_;
};

// Of the first of several devices.
MemoryCapacity capacity_of(const std::string& list) {
  const std::string backend = list.substr(0, list.find(','));
  const Result<const BackendInfo*> info = backend.empty() ? &default_backend() : find_backend(backend);
  if (!info.ok() || !info.value()->devices) return host_memory();  // uses host memory: no need to open it
  const Result<std::unique_ptr<Backend>> opened = backend.empty() ? info.value()->open(1) : open_backend(backend, 1);
  if (!opened.ok()) return host_memory();
  const DeviceInfo device = opened.value()->info();
  return {device.memory_bytes, available_bytes(device), device.has_dedicated_memory};
}

}  // namespace

MemoryCapacity model_memory(const BackendChoice& backend) {
  static ModelMeasurer measurer;
  MemoryCapacity memory = capacity_of(backend.name);
  memory.measure = [backend](const fs::path& file) { return measurer.measure(backend, file); };
  return memory;
}

Result<EngineMemory> chat_memory(const ModelInstance& model, const MemoryLimits& limits, int64_t context) {
  const EngineOptions options{.max_sequences = 1,
                              .context = static_cast<int>(std::min(context, model.model().config.max_context)),
                              .step_tokens = model.backend_info().step_tokens,
                              .queue_limit = 1};
  return plan_engine_memory(model, limits, options);
}

}  // namespace zinc
