#include "convert/model_mapping.h"

#include <algorithm>
#include <array>

#include "base/ceil_div.h"
#include "base/sanitize_for_terminal.h"

namespace zinc {
namespace {

// Matrices that every program computes with in f32: small, and sensitive to rounding.
constexpr std::array<std::string_view, 3> kFloatMatrices = {"ffn_gate_inp.weight", "ffn_gate_inp_shexp.weight",
                                                            "ssm_conv1d.weight"};
// Not needed: recomputed by every program, or scales of activations, which stay unquantized.
constexpr std::array<std::string_view, 8> kIgnoredSuffixes = {
    "rotary_emb.inv_freq", ".masked_bias", ".input_scale", ".activation_scale",
    "_activation_scale",   ".k_scale",     ".v_scale",     "input_global_scale"};
constexpr std::array<std::string_view, 2> kScaleSuffixes = {"_scale_inv", "_scale"};

Shape shape_of_dims(std::span<const int64_t> dims) { return dims.empty() ? Shape{1} : Shape(dims); }

}  // namespace

ModelMapping::ModelMapping(const Checkpoint& checkpoint, CheckpointConfig config, std::string_view gguf_name,
                           const Format& format)
    : checkpoint_(checkpoint), config_(std::move(config)), gguf_name_(gguf_name), format_(format) {}

void ModelMapping::fail_with(Error error) {
  if (status_.ok()) status_ = std::move(error);
}

Error ModelMapping::bad_shape(const CheckpointTensor& tensor, std::string_view expected) const {
  return fail(ErrorCode::invalid_input, "{}: tensor '{}' is {}, expected {} (by {})", tensor.file,
              sanitize_for_terminal(tensor.tensor.name), shape_text(tensor.tensor.shape), expected, config_.name());
}

std::vector<int64_t> ModelMapping::shape_of(std::string_view source) const {
  const CheckpointTensor* const tensor = checkpoint_.find(source);
  const bool has_elements = tensor && !tensor->tensor.bytes.empty();
  return has_elements ? tensor->tensor.shape : std::vector<int64_t>();
}

const CheckpointTensor* ModelMapping::use(std::string_view source) {
  const CheckpointTensor* const tensor = checkpoint_.find(source);
  if (!tensor) {
    fail_with(fail(ErrorCode::invalid_input, "{}: tensor '{}' is missing; download the weights again", config_.name(),
                   source));
    return nullptr;
  }
  used_.insert(std::string(source));
  if (!tensor->tensor.bytes.empty()) return tensor;
  fail_with(bad_shape(*tensor, "at least one element"));
  return nullptr;
}

void ModelMapping::ignore(std::string_view source) {
  if (has(source)) used_.insert(std::string(source));
}

// The size of the blocks of FP8 scales: from the config, or from the scales' shape.
bool ModelMapping::find_blocks(const CheckpointTensor& weight, SourceMatrix& source) {
  const std::vector<int64_t>& shape = weight.tensor.shape;
  const std::vector<int64_t>& scales = source.scale->tensor.shape;
  int64_t n_scales = 1;
  for (const int64_t length : scales) n_scales *= length;
  const int64_t rows = shape.size() < 2 ? 1 : shape[shape.size() - 2], columns = shape.empty() ? 1 : shape.back();
  int64_t n_rows = 1;
  for (size_t i = 0; i + 1 < shape.size(); ++i) n_rows *= shape[i];
  const json::value* const quantization = config_.find("quantization_config");
  const json::value* const sizes =
      quantization && quantization->is_object() ? quantization->get_object().if_contains("weight_block_size") : nullptr;
  source.block_columns = columns;
  if (n_scales == 1 && n_rows == rows) {
    source.block_rows = rows;
  } else if (n_scales == n_rows) {  // one per row
    source.block_rows = 1;
  } else if (n_scales * rows == n_rows) {  // one per matrix
    source.block_rows = rows;
  } else if (sizes && sizes->is_array() && sizes->get_array().size() == 2 && sizes->get_array()[0].is_int64() &&
             sizes->get_array()[1].is_int64()) {
    source.block_rows = sizes->get_array()[0].get_int64();
    source.block_columns = sizes->get_array()[1].get_int64();
  }
  constexpr int64_t kMaxBlock = 1 << 30;  // of a hostile config
  const auto is_block = [](int64_t length) { return length > 0 && length <= kMaxBlock; };
  const bool is_valid = rows > 0 && is_block(source.block_rows) && is_block(source.block_columns);
  return is_valid &&
         n_scales == n_rows / rows * ceil_div(rows, source.block_rows) * ceil_div(columns, source.block_columns);
}

std::optional<SourceMatrix> ModelMapping::matrix(const CheckpointTensor& tensor) {
  const std::string name = sanitize_for_terminal(tensor.tensor.name);
  if (!tensor.tensor.type->to_float) {
    fail_with(
        fail(ErrorCode::unsupported,
             "{}: tensor '{}' has elements of type {}, which are not weights; convert the checkpoint that was not "
             "quantized",
             tensor.file, name, tensor.tensor.type->name));
    return std::nullopt;
  }
  SourceMatrix source{.tensor = &tensor};
  if (!tensor.tensor.type->is_fp8) return source;
  for (const std::string_view suffix : kScaleSuffixes) {
    source.scale = checkpoint_.find(tensor.tensor.name + std::string(suffix));
    if (source.scale) break;
  }
  if (!source.scale) {
    fail_with(fail(ErrorCode::invalid_input, "{}: tensor '{}' is FP8, but its scales '{}_scale_inv' are missing",
                   tensor.file, name, name));
    return std::nullopt;
  }
  used_.insert(source.scale->tensor.name);
  if (source.scale->tensor.type->to_float && find_blocks(tensor, source)) return source;
  fail_with(fail(ErrorCode::unsupported, "{}: tensor '{}' {} has FP8 scales {}, which fit no blocks", tensor.file, name,
                 shape_text(tensor.tensor.shape), shape_text(source.scale->tensor.shape)));
  return std::nullopt;
}

const Format& ModelMapping::format_of(std::string_view name, const Shape& shape) const {
  const bool is_float = shape.n_dims() < 2 || !name.ends_with(".weight") || name.ends_with("_norm.weight") ||
                        std::ranges::any_of(kFloatMatrices, [&](std::string_view f) { return name.ends_with(f); });
  if (is_float) return k_f32;
  return shape.inner() % format_.block_elems == 0 ? format_ : k_f16;
}

void ModelMapping::append(OutputTensor tensor) {
  if (!names_.insert(tensor.name).second) {
    fail_with(fail(ErrorCode::invalid_input, "{}: two tensors would be named '{}'", config_.name(), tensor.name));
    return;
  }
  if (tensor.shape.elems() == 0) {
    fail_with(fail(ErrorCode::invalid_input, "{}: tensor '{}' would be empty", config_.name(), tensor.name));
    return;
  }
  if (!tensor.format) tensor.format = &format_of(tensor.name, tensor.shape);
  tensors_.push_back(std::move(tensor));
}

void ModelMapping::add(std::string_view name, std::string_view source, TensorOptions options) {
  const CheckpointTensor* const tensor = use(source);
  if (!tensor) return;
  std::vector<int64_t> dims = tensor->tensor.shape;
  if (dims.size() > Shape::kMaxDims) return fail_with(bad_shape(*tensor, "at most 4 dimensions"));
  std::optional<SourceMatrix> from = matrix(*tensor);
  if (!from) return;
  from->transposed = options.transposed;
  if (options.transposed && (dims.size() < 2 || from->scale))
    return fail_with(bad_shape(*tensor, "matrices that are not FP8"));
  if (options.transposed) std::swap(dims[dims.size() - 1], dims[dims.size() - 2]);
  if (dims.size() < 2 && !options.rows.empty()) options.columns = std::move(options.rows), options.rows.clear();
  const auto replace = [&](size_t dim, const std::vector<int64_t>& indices) {
    int64_t n_stacked = 1;
    for (size_t i = 0; i < dim && dim + 1 < dims.size(); ++i) n_stacked *= dims[i];
    const int64_t n_available = n_stacked * dims[dim];
    if (std::ranges::any_of(indices, [&](int64_t index) { return index < 0 || index >= n_available; })) return false;
    dims[dim] = static_cast<int64_t>(indices.size()) / n_stacked;
    return true;
  };
  if ((!options.rows.empty() && !replace(dims.size() - 2, options.rows)) ||
      (!options.columns.empty() && (dims.empty() || !replace(dims.size() - 1, options.columns)))) {
    return fail_with(bad_shape(*tensor, "the size that the config says"));
  }
  const Shape shape = options.shape.value_or(shape_of_dims(dims));
  if (shape.elems() != shape_of_dims(dims).elems()) return fail_with(bad_shape(*tensor, shape.to_string()));
  append({.name = std::string(name),
          .shape = shape,
          .sources = {*from},
          .rows = std::move(options.rows),
          .columns = std::move(options.columns),
          .transform = options.transform});
}

void ModelMapping::add_if_present(std::string_view name, std::string_view source, TensorOptions options) {
  if (has(source)) add(name, source, std::move(options));
}

void ModelMapping::add_stacked(std::string_view name, std::span<const std::string> sources) {
  OutputTensor out{.name = std::string(name), .shape = {}};
  for (const std::string& source : sources) {
    const CheckpointTensor* const tensor = use(source);
    if (!tensor) return;
    const std::optional<SourceMatrix> from = matrix(*tensor);
    if (!from) return;
    out.sources.push_back(*from);
    const std::vector<int64_t>& first = out.sources[0].tensor->tensor.shape;
    if (tensor->tensor.shape.size() != 2 || tensor->tensor.shape != first) {
      return fail_with(bad_shape(*tensor, first.size() == 2 ? shape_text(first) : "a matrix"));
    }
  }
  if (out.sources.empty()) return unsupported("has no experts");
  const std::vector<int64_t>& shape = out.sources[0].tensor->tensor.shape;
  out.shape = Shape{static_cast<int64_t>(sources.size()), shape[0], shape[1]};
  append(std::move(out));
}

void ModelMapping::add_mxfp4(std::string_view name, std::string_view blocks, std::string_view scales,
                             std::vector<int64_t> rows) {
  constexpr int64_t kBlockElems = 32, kPacked = 16;
  const CheckpointTensor* const packed = use(blocks);
  const CheckpointTensor* const exponents = use(scales);
  if (!packed || !exponents) return;
  const std::vector<int64_t>& shape = packed->tensor.shape;
  if (shape.size() != 4 || shape[3] != kPacked || packed->tensor.type->name != "U8") {
    return fail_with(bad_shape(*packed, "[experts,rows,blocks,16] of U8"));
  }
  if (exponents->tensor.shape != std::vector(shape.begin(), shape.begin() + 3) ||
      exponents->tensor.type->name != "U8") {
    return fail_with(bad_shape(*exponents, shape_text(std::span(shape).first(3)) + " of U8"));
  }
  const bool is_valid = std::ranges::all_of(rows, [&](int64_t row) { return row >= 0 && row < shape[0] * shape[1]; });
  if (!is_valid) return fail_with(bad_shape(*packed, "the size that the config says"));
  const int64_t n_rows = rows.empty() ? shape[1] : static_cast<int64_t>(rows.size()) / std::max<int64_t>(shape[0], 1);
  has_mxfp4_ = true;
  append({.name = std::string(name),
          .shape = Shape{shape[0], n_rows, shape[2] * kBlockElems},
          .format = find_format("mxfp4"),
          .contents = TensorContents::mxfp4,
          .sources = {{.tensor = packed}, {.tensor = exponents}},
          .rows = std::move(rows)});
}

void ModelMapping::add_values(std::string_view name, std::vector<float> values) {
  const Shape shape{static_cast<int64_t>(values.size())};
  append({.name = std::string(name), .shape = shape, .contents = TensorContents::values, .values = std::move(values)});
}

Status ModelMapping::finish() {
  if (!config_.status().ok()) return config_.status().error();
  if (!status_.ok()) return status_.error();
  for (const CheckpointTensor& tensor : checkpoint_.tensors()) {
    const std::string& name = tensor.tensor.name;
    const bool is_ignored =
        std::ranges::any_of(kIgnoredSuffixes, [&](std::string_view suffix) { return name.ends_with(suffix); });
    if (is_ignored || used_.contains(name)) continue;
    return fail(ErrorCode::unsupported,
                "{}: tensor '{}' has no counterpart in the architecture '{}'; the model would not be complete without "
                "it, so it cannot be converted",
                tensor.file, sanitize_for_terminal(name), gguf_name_);
  }
  return ok_status();
}

}  // namespace zinc
