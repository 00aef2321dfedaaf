// A Hugging Face checkpoint as a GGUF file: what the file will have (plan_conversion), and writing it (write_gguf).
// Memory is bounded, whatever the model: tensors are read, converted and written a few rows at a time.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "convert/checkpoint.h"
#include "convert/output_tensor.h"
#include "gguf/gguf_writer.h"
#include "gguf/row_writer.h"

namespace zinc {

struct ConversionOptions {
  const Format* format = nullptr;  // of the matrices; nullptr: the checkpoint's own (FP8: bf16)
  std::string pretokenizer = {};   // tokenizer.ggml.pre, where it cannot be identified
};

struct Conversion {
  std::unique_ptr<const Checkpoint> checkpoint;  // the tensors' sources
  std::string architecture;
  GgufHeader header;
  std::vector<OutputTensor> tensors;  // in the order of the header's
  std::vector<std::string> warnings;
};

Result<Conversion> plan_conversion(const std::filesystem::path& folder, const ConversionOptions& options);

// The file appears under its name only when it is complete; an error leaves nothing behind.
Status write_gguf(const Conversion& conversion, const std::filesystem::path& path, const WriteCallbacks& callbacks);

// Formats of ConversionOptions, by the names that the command takes: "f32, f16, bf16, q8_0".
const Format* find_conversion_format(std::string_view name);  // nullptr: not one of them
std::string conversion_format_names();
std::string family_names();  // the classes that can be converted, sorted, for messages

}  // namespace zinc
