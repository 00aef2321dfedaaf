// Whether a model fits in memory. The need of an installed model is what the engine plans for it; this folder does not
// know the engine, so the caller supplies that (MemoryCapacity::measure). A model that is not installed has only a
// size.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string_view>

#include "base/result.h"

namespace zinc {

// For a chat of kCatalogContext tokens.
struct MemoryNeed {
  uint64_t bytes = 0;        // that it takes
  uint64_t limit_bytes = 0;  // that must be free, so that the engine grants it
};

// Estimate from the file size, for models that are not installed: 10 % more, plus 256 MiB.
MemoryNeed estimated_need(uint64_t file_bytes);

enum class Fit : uint8_t { unknown, fits, tight, too_large };
// The memory that models are loaded into: host or GPU.
struct MemoryCapacity {
  uint64_t n_bytes = 0, n_available = 0;
  bool is_gpu = false;  // GPU memory
  // Of an installed model's file; an error: it cannot run here. Empty: estimated, as if it were not installed.
  std::function<Result<MemoryNeed>(const std::filesystem::path& file)> measure = {};
};
MemoryCapacity host_memory();  // without GPUs; measures nothing
// tight: fits the total memory, but not the free memory. A need of 0 is unknown.
Fit judge_fit(const MemoryNeed& need, const MemoryCapacity& memory);
std::string_view fit_name(Fit fit);

}  // namespace zinc
