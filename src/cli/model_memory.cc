#include "cli/model_memory.h"

#include "backend/backend.h"

namespace zinc {

MachineMemory model_memory() {
  const BackendInfo& backend = default_backend();
  if (!backend.devices) return this_machine();  // computes in the machine's memory; opening it would tell nothing more
  const Result<std::unique_ptr<Backend>> opened = backend.open(1);
  if (!opened.ok()) return this_machine();
  const DeviceInfo device = opened.value()->info();
  return {device.memory_bytes, available_bytes(device), device.has_own_memory};
}

}  // namespace zinc
