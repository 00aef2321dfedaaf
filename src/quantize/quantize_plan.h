// What a quantized file will have: the format of every tensor, metadata, exact size. Nothing is read but the header.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "gguf/gguf_file.h"
#include "gguf/gguf_writer.h"
#include "quantize/choose_formats.h"
#include "quantize/importance_matrix.h"
#include "quantize/quantizer.h"

namespace zinc {

struct FormatOverride {
  std::string pattern;             // a regular expression (ECMAScript) that is found in the tensor's name
  const Format* format = nullptr;  // nullptr: the tensor keeps its own
};

struct QuantizeOptions {
  const QuantizationType* type = nullptr;      // REQUIRES: not nullptr
  std::vector<FormatOverride> overrides = {};  // the first that matches decides
  const ImportanceMatrix* importance = nullptr;
  std::string importance_path = {};  // for quantize.imatrix.file
  bool allow_requantize = false;
  bool keep_split = false;
  bool dry_run = false;  // a missing importance matrix is a warning
};

struct PlannedTensor {
  const GgufTensor* source = nullptr;
  const Format* format = nullptr;
  const Quantizer* quantizer = nullptr;  // nullptr: the bytes are copied
};

struct QuantizePlan {
  std::vector<PlannedTensor> tensors;  // in the order of the headers, shard after shard
  std::vector<GgufHeader> headers;     // one per file
  std::vector<std::string> warnings;
  uint64_t n_elems = 0, n_tensor_bytes = 0;

  uint64_t file_bytes() const;  // of all files
  double bits_per_weight() const { return 8 * static_cast<double>(n_tensor_bytes) / static_cast<double>(n_elems); }
};

// `file` and the importance matrix must outlive the plan.
Result<QuantizePlan> plan_quantization(const GgufFile& file, const QuantizeOptions& options);

// The entry of one matrix (expert) of the tensor in an importance matrix.
ImportanceRow importance_row(const GgufTensor& tensor, int64_t mat);

// The files of a plan: `output` itself, or NAME-00001-of-0000N.gguf for each shard.
std::vector<std::filesystem::path> output_paths(const std::filesystem::path& output, size_t n_files);

// "q4_k" or "copy" of --tensor REGEX=TYPE. nullopt: no such format, or no quantizer makes it.
std::optional<const Format*> find_override_format(std::string_view name);
std::string override_format_names();  // "bf16 (16 bits per weight), ..., copy"

}  // namespace zinc
