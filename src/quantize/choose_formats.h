// The format of every tensor of a quantized file by the rules of its type. Pure: names, shapes and a few facts of the
// model in, formats out.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "quantize/quantization_type.h"
#include "tensor/tensor_view.h"

namespace zinc {

struct ModelFacts {
  std::string_view architecture = {};
  int64_t n_layers = 0;    // {architecture}.block_count
  int64_t n_heads = 0;     // query heads of the first layer
  int64_t n_kv_heads = 0;  // KV heads of the first layer
  int64_t n_experts = 0;
  bool has_importance = false;
};

struct TensorFacts {
  std::string_view name;
  Shape shape;
};

struct FormatChoice {
  const Format* format = nullptr;    // nullptr: the tensor keeps its own
  const Format* intended = nullptr;  // what the rules say, if its rows are not whole blocks of that; else nullptr
};

// False: norms, biases, routers, convolution kernels and other small tensors, which are never quantized.
bool is_quantizable(const TensorFacts& tensor);

// In the order of `tensors`. Rules that count tensors count in this order: that of the layers, or of the file.
std::vector<FormatChoice> choose_formats(const QuantizationType& type, const ModelFacts& model,
                                         std::span<const TensorFacts> tensors);

// The same format, or a larger one with shorter blocks, or f16, of which the rows of the tensor are whole blocks.
const Format& fitting_format(const Format& format, const Shape& shape);

// The number in "blk.12.attn_v.weight"; -1: none.
int64_t layer_of(std::string_view tensor_name);

}  // namespace zinc
