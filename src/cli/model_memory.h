// The memory that models are loaded into: a backend's device memory if it has its own, else the host's; and what a chat
// with an installed model takes of it, as the engine plans it.
#pragma once

#include "engine/engine_memory.h"
#include "hub/fit.h"

namespace zinc {

struct BackendChoice {
  std::string name;                   // optionally with a device; empty: the default backend
  const Format* kv_format = nullptr;  // nullptr: the backend's default
  auto operator<=>(const BackendChoice&) const = default;
};

// Its `measure` lays the model out on the backend. Thread-safe.
MemoryCapacity model_memory(const BackendChoice& backend = {});

// One chat of `context` tokens (0: as many as fit).
Result<EngineMemory> chat_memory(const ModelInstance& model, const MemoryLimits& limits, int64_t context);

inline constexpr size_t kUnlimitedMemory = size_t{1} << 60;

}  // namespace zinc
