// The memory that models are loaded into: the default backend's device memory if it has its own, else the host's; and
// what a chat with an installed model takes of it, as the engine plans it.
#pragma once

#include "engine/engine_memory.h"
#include "hub/fit.h"

namespace zinc {

// Its `measure` lays the model out on the default backend. Thread-safe.
MemoryCapacity model_memory();

// One chat of `context` tokens (0: as many as fit).
Result<EngineMemory> chat_memory(const ModelInstance& model, size_t limit, int64_t context);

inline constexpr size_t kUnlimitedMemory = size_t{1} << 60;

}  // namespace zinc
