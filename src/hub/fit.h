// Memory need of a model, and whether it fits.
#pragma once

#include <cstdint>
#include <string_view>

#include "gguf/gguf_file.h"

namespace zinc {

struct MemoryNeed {
  uint64_t weight_bytes = 0;
  uint64_t cache_bytes = 0;    // KV cache and recurrent states of one sequence
  uint64_t working_bytes = 0;  // activations of the largest step
  uint64_t bytes() const { return weight_bytes + cache_bytes + working_bytes; }
};

// From the file's graph, for one sequence of `context` tokens (at most the model's context) with an f16 KV cache and
// the weights as stored in the file, whatever format a device uses. GPU workspaces are not counted. An unknown
// architecture is an error.
Result<MemoryNeed> memory_need(const GgufFile& file, int64_t context);

// Estimate from the file size, for models that are not installed: 10 % more, plus 256 MiB.
uint64_t estimated_memory_bytes(uint64_t file_bytes);

enum class Fit : uint8_t { unknown, fits, tight, too_large };
// The memory that models are loaded into: host or GPU.
struct MemoryCapacity {
  uint64_t n_bytes = 0, n_available = 0;
  bool is_gpu = false;  // GPU memory
};
MemoryCapacity host_memory();  // without GPUs
// tight: fits the total memory, but not the free memory. A need of 0 is unknown.
Fit judge_fit(uint64_t needed_bytes, const MemoryCapacity& memory);
std::string_view fit_name(Fit fit);

}  // namespace zinc
