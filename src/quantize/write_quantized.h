// Writes the files of a plan. All cores quantize, a few rows at a time; pages of the input that were read are released:
// at most some tens of megabytes besides the importance matrix, whatever the model. The bytes do not depend on the
// number of threads. The files appear under their names when all are complete, the first shard last; an error leaves
// none behind.
#pragma once

#include <filesystem>
#include <span>

#include "gguf/row_writer.h"
#include "quantize/quantize_plan.h"

namespace zinc {

// n_threads 0: all cores. REQUIRES: the file and the importance matrix of the plan; one path per header.
Status write_quantized(const GgufFile& file, const QuantizePlan& plan, const ImportanceMatrix* importance,
                       std::span<const std::filesystem::path> paths, const WriteCallbacks& callbacks,
                       int n_threads = 0);

}  // namespace zinc
