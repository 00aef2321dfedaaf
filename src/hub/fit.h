// How much memory a model needs and whether this machine has it.
#pragma once

#include <cstdint>
#include <string_view>

#include "gguf/gguf_file.h"

namespace zinc {

struct MemoryNeed {
  uint64_t weight_bytes = 0;
  uint64_t cache_bytes = 0;    // keys, values and recurrent states of one sequence
  uint64_t working_bytes = 0;  // activations of the largest step
  uint64_t bytes() const { return weight_bytes + cache_bytes + working_bytes; }
};

// From the file's own graph, for one sequence of `context` positions (or as many as the model has) with keys and values
// in f16 and weights as the file has them, whatever a device may make of them. An architecture we do not know is an
// error.
Result<MemoryNeed> memory_need(const GgufFile& file, int64_t context);

// A guess from the file's size alone, for models that are not here: a tenth more, and a quarter of a gigabyte.
uint64_t estimated_memory_bytes(uint64_t file_bytes);

enum class Fit : uint8_t { unknown, fits, tight, too_large };
// The memory that models go into.
struct MachineMemory {
  uint64_t n_bytes = 0, n_available = 0;
  bool is_gpu = false;  // a card's own
};
MachineMemory this_machine();  // without its cards
// tight: it fits the machine, but not what is free now. A need of 0 is unknown.
Fit judge_fit(uint64_t needed_bytes, const MachineMemory& machine);
std::string_view fit_name(Fit fit);

}  // namespace zinc
