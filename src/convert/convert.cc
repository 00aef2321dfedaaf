#include "convert/convert.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>

#include "base/sanitize_for_terminal.h"
#include "convert/checkpoint_config.h"
#include "convert/family.h"
#include "convert/read_file.h"
#include "convert/tokenizer_keys.h"

namespace zinc {
namespace {

namespace fs = std::filesystem;

constexpr uint32_t kQuantizationVersion = 2;  // of the block layouts

struct FileType {
  std::string_view format;
  uint32_t number;  // general.file_type
};
constexpr std::array kFileTypes = {FileType{"f32", 0}, FileType{"f16", 1}, FileType{"bf16", 32}, FileType{"q8_0", 7}};
constexpr uint32_t kMxfp4FileType = 38;

Result<const Family*> find_family(const CheckpointConfig& config) {
  const std::vector<std::string> classes = config.architectures();
  for (const std::string& name : classes) {
    for (const Family* const* family = kFamilies; *family; ++family) {
      if (std::ranges::find((*family)->class_names, name) != (*family)->class_names.end()) return *family;
    }
  }
  if (classes.empty()) {
    return fail(ErrorCode::invalid_input, "{}: 'architectures' is missing; it names the model's class", config.name());
  }
  return fail(ErrorCode::unsupported, "{}: models of the class '{}' cannot be converted; supported are: {}",
              config.name(), sanitize_for_terminal(classes[0]), family_names());
}

// Checkpoints of other quantizers have weights that only their own code can read.
Status check_quantization(const CheckpointConfig& config) {
  const json::value* const value = config.find("quantization_config");
  if (!value || !value->is_object()) return ok_status();
  CheckpointConfig quantization(value->get_object(), config.name() + ": quantization_config");
  const std::string method = quantization.text_or("quant_method", "");
  const std::string format = quantization.text_or("format", "");
  const bool is_float8 = method == "fp8" || (method == "compressed-tensors" &&
                                             (format == "float-quantized" || format == "naive-quantized"));
  if (is_float8 || method == "mxfp4") return ok_status();
  return fail(
      ErrorCode::unsupported,
      "{}: the weights are quantized by '{}'; FP8 and MXFP4 can be read, for others convert the checkpoint from "
      "which this one was made",
      config.name(), sanitize_for_terminal(method + (format.empty() ? "" : " " + format)));
}

// The type with most bytes in matrices: not that of a few f32 scales of FP8.
const Format* checkpoint_format(const Checkpoint& checkpoint) {
  std::map<const Format*, size_t> n_bytes;
  for (const CheckpointTensor& tensor : checkpoint.tensors()) {
    const Format* const format = tensor.tensor.type->format;
    if (tensor.tensor.shape.size() >= 2 && format) n_bytes[format] += tensor.tensor.bytes.size();
  }
  if (n_bytes.empty()) return find_format("bf16");
  return std::ranges::max_element(n_bytes, {}, [](const auto& entry) { return entry.second; })->first;
}

// general.sampling.*: what generation_config.json recommends.
Status set_sampling_keys(const fs::path& folder, GgufHeader& header) {
  ZINC_TRY(root, read_optional_json_object(folder / "generation_config.json"));
  CheckpointConfig config(root, (folder / "generation_config.json").string());
  struct Key {
    const char *source, *name;
  };
  constexpr double kMaxTopK = std::numeric_limits<int32_t>::max();
  if (config.has("top_k")) {  // negative: all tokens, as 0
    const double top_k = std::max(0.0, config.real_or("top_k", 0));
    header.set("general.sampling.top_k", static_cast<int32_t>(std::min(top_k, kMaxTopK)));
  }
  for (const Key& key : {Key{"top_p", "top_p"}, Key{"min_p", "min_p"}, Key{"temperature", "temp"},
                         Key{"repetition_penalty", "penalty_repeat"}}) {
    if (!config.has(key.source)) continue;
    header.set(fmt::format("general.sampling.{}", key.name), static_cast<float>(config.real_or(key.source, 1)));
  }
  return config.status();
}

// "1.2B": the parameters, of experts "128x1.5B" with those of one expert and all shared ones.
std::string size_label(const std::vector<OutputTensor>& tensors) {
  double n_shared = 0, n_expert = 0, n_total = 0;
  int64_t n_experts = 0;
  for (const OutputTensor& tensor : tensors) {
    const auto n = static_cast<double>(tensor.shape.elems());
    n_total += n;
    if (tensor.name.find("_exps.") != tensor.name.npos && tensor.shape.n_dims() >= 2) {
      n_experts = tensor.shape[0];
      n_expert += n / static_cast<double>(n_experts);
    } else {
      n_shared += n;
    }
  }
  double n = n_experts > 0 ? n_shared + n_expert : n_total;
  constexpr std::array kUnits = {"", "K", "M", "B", "T"};
  size_t unit = 1;
  for (n /= 1000; unit + 1 < kUnits.size() && n >= 1000; ++unit) n /= 1000;
  const std::string count = fmt::format("{:.{}f}{}", n, n < 9.95 ? 1 : 0, kUnits[unit]);
  return n_experts > 0 ? fmt::format("{}x{}", n_experts, count) : count;
}

std::string name_of(const fs::path& folder) {
  std::error_code ignored;
  const fs::path absolute = fs::weakly_canonical(folder, ignored);
  return (absolute.has_filename() ? absolute : absolute.parent_path()).filename().string();
}

uint32_t file_type(const Format& format, bool has_mxfp4) {
  if (has_mxfp4 && format.name != "q8_0") return kMxfp4FileType;
  for (const FileType& type : kFileTypes) {
    if (type.format == format.name) return type.number;
  }
  return 0;
}

bool has_overflow(const Format& format, std::span<const float> values) {
  constexpr float kMaxHalf = 65504;
  if (format.name != "f16") return false;
  return std::ranges::any_of(values, [](float value) { return std::isfinite(value) && std::abs(value) > kMaxHalf; });
}

RowSource rows_of(const OutputTensor& tensor) {
  const auto encode = [&tensor](int64_t row, std::vector<float>& scratch, std::span<std::byte> out) -> Status {
    scratch.clear();
    encode_rows(tensor, row, 1, scratch, out);
    if (!has_overflow(*tensor.format, scratch)) return ok_status();
    return fail(ErrorCode::invalid_input,
                "tensor '{}' has values beyond 65504, the largest of f16; use --type bf16, f32 or q8_0", tensor.name);
  };
  return {.n_rows = tensor.n_rows(),
          .row_elems = tensor.shape.inner(),
          .n_row_bytes = row_bytes(*tensor.format, static_cast<size_t>(tensor.shape.inner())),
          .encode = encode};
}

}  // namespace

const Format* find_conversion_format(std::string_view name) {
  const bool is_listed = std::ranges::any_of(kFileTypes, [&](const FileType& type) { return type.format == name; });
  return is_listed ? find_format(name) : nullptr;
}

std::string conversion_format_names() {
  std::string names;
  for (const FileType& type : kFileTypes) names += (names.empty() ? "" : ", ") + std::string(type.format);
  return names;
}

std::string family_names() {
  std::vector<std::string_view> classes;
  for (const Family* const* family = kFamilies; *family; ++family) {
    classes.insert(classes.end(), (*family)->class_names.begin(), (*family)->class_names.end());
  }
  std::ranges::sort(classes);
  return fmt::format("{}", fmt::join(classes, ", "));
}

Result<Conversion> plan_conversion(const fs::path& folder, const ConversionOptions& options) {
  ZINC_TRY(config, CheckpointConfig::read(folder));
  ZINC_TRY(family, find_family(config));
  ZINC_TRY(quantization, check_quantization(config));
  ZINC_TRY(opened, Checkpoint::open(folder));
  auto checkpoint = std::make_unique<const Checkpoint>(std::move(opened));
  const Format& format = options.format ? *options.format : *checkpoint_format(*checkpoint);
  ModelMapping mapping(*checkpoint, config, family->gguf_name, format);
  GgufHeader& header = mapping.header();
  header.set("general.architecture", family->gguf_name).set("general.type", "model");
  header.set("general.name", name_of(folder));
  family->map(mapping);
  ZINC_TRY(finished, mapping.finish());
  header.set("general.size_label", size_label(mapping.tensors()));
  header.set("general.file_type", file_type(format, mapping.has_mxfp4()));
  header.set("general.quantization_version", kQuantizationVersion);
  ZINC_TRY(sampling, set_sampling_keys(folder, header));
  Conversion out{.checkpoint = nullptr,
                 .architecture = std::string(family->gguf_name),
                 .header = {},
                 .tensors = std::move(mapping.tensors()),
                 .warnings = mapping.warnings()};
  const auto table = std::ranges::find(out.tensors, "token_embd.weight", &OutputTensor::name);
  ZINC_TRY(tokenizer, set_tokenizer_keys({.folder = folder,
                                          .kind = family->tokenizer,
                                          .n_vocab = table->shape[0],
                                          .pretokenizer = options.pretokenizer},
                                         config, header, out.warnings));
  for (const OutputTensor& tensor : out.tensors) header.add_tensor(tensor.name, tensor.shape, *tensor.format);
  if (checkpoint->n_left_out() > 0) {
    out.warnings.push_back(
        fmt::format("{} tensors of encoders for images or sound are left out; only the language model "
                    "is converted",
                    checkpoint->n_left_out()));
  }
  out.header = std::move(header);
  out.checkpoint = std::move(checkpoint);
  return out;
}

Status write_gguf(const Conversion& conversion, const fs::path& path, const WriteCallbacks& callbacks) {
  ZINC_TRY(file, GgufFileWriter::create(path, conversion.header));
  RowWriter writer(callbacks, conversion.header.file_bytes());
  for (const OutputTensor& tensor : conversion.tensors) {
    ZINC_TRY(written, writer.write(file, rows_of(tensor)));
    for (const SourceMatrix& source : tensor.sources) conversion.checkpoint->release_pages(*source.tensor);
  }
  return file.commit();
}

}  // namespace zinc
