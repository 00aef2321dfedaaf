// Small random models for tests: for each architecture one or more configurations as metadata. The list of weights is
// not written down: read_model is called repeatedly, and each missing tensor is taken from the error that names it. So
// a new architecture needs metadata only.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"
#include "tensor/tensor_view.h"
#include "tests/support/gguf_writer.h"

namespace zinc {

using TinyValue = std::variant<uint32_t, int64_t, float, bool, std::string, std::vector<uint32_t>, std::vector<bool>>;

struct TinyKey {
  std::string name;  // without the architecture's prefix
  TinyValue value;
  bool required = true;  // the architecture rejects a file without it
};

struct TinyTensor {
  std::string name;
  Shape shape;
  bool required = true;
};

struct TinyModel {
  std::string name;  // of the configuration: "gemma4 with experts"
  std::string architecture;
  std::vector<TinyKey> metadata;
  std::vector<TinyTensor> optional_tensors = {};  // "blk.*.x" stands for every layer
  const Format* matrix_format = nullptr;          // of all matrices; nullptr: a mix of f32, f16 and q8_0

  const TinyKey* find(std::string_view key) const;  // nullptr: absent
};

inline constexpr int64_t kTinyVocabulary = 97;
inline constexpr int kTinyContext = 256;

const std::vector<TinyModel>& tiny_models();
const TinyModel& tiny_model(std::string_view name);  // REQUIRES: it exists

// The tensors of the configuration, including its optional ones. Fails with the first error that is not about a missing
// tensor.
Result<std::vector<TinyTensor>> find_tensors(const TinyModel& model);

// The missing tensor named by an error of read_model.
std::optional<TinyTensor> missing_tensor(const std::string& message);

void add_metadata(GgufWriter& writer, const TinyModel& model);

// A GGUF file with random weights of these shapes: matrices in TinyModel::matrix_format, the rest in f32. A tensor's
// values depend on its name only. The contents of `writer` come first.
std::string make_gguf(const TinyModel& model, const std::vector<TinyTensor>& tensors, GgufWriter writer = {});
std::string make_gguf(const TinyModel& model);  // REQUIRES: find_tensors succeeds

}  // namespace zinc
