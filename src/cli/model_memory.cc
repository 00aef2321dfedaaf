#include "cli/model_memory.h"

#include "backend/backend.h"

namespace zinc {

MemoryCapacity model_memory() {
  const BackendInfo& backend = default_backend();
  if (!backend.devices) return host_memory();  // uses host memory: no need to open it
  const Result<std::unique_ptr<Backend>> opened = backend.open(1);
  if (!opened.ok()) return host_memory();
  const DeviceInfo device = opened.value()->info();
  return {device.memory_bytes, available_bytes(device), device.has_dedicated_memory};
}

}  // namespace zinc
