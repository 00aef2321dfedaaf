// Early Qwen3-Next converters packed the input projections of a DeltaNet layer into one matrix, head by head. Both
// layouts must give the same model.
#include <gtest/gtest.h>

#include "tests/support/gguf_writer.h"
#include "tests/support/step_runner.h"
#include "tests/support/tiny_model.h"

namespace zinc {
namespace {

constexpr size_t kKeyHeads = 2, kValueHeads = 6, kHeadDim = 16, kDim = 64;  // of the tiny qwen3next
constexpr size_t kGroup = kValueHeads / kKeyHeads * kHeadDim;               // value rows per key head

std::vector<float> dequantized(const GgufFile& file, const std::string& name) {
  const TensorView& view = file.find_tensor(name)->view;
  std::vector<float> out(static_cast<size_t>(view.shape.elems()));
  view.format->dequantize(view.bytes, out);
  return out;
}

// Per key head: its query, its key, its value heads, their z.
std::vector<float> pack_ssm_in(const std::vector<float>& qkv, const std::vector<float>& z) {
  std::vector<float> out;
  const auto take = [&](const std::vector<float>& from, size_t row, size_t n_rows) {
    const auto begin = from.begin() + static_cast<ptrdiff_t>(row * kDim);
    out.insert(out.end(), begin, begin + static_cast<ptrdiff_t>(n_rows * kDim));
  };
  for (size_t h = 0; h < kKeyHeads; ++h) {
    take(qkv, h * kHeadDim, kHeadDim);
    take(qkv, (kKeyHeads + h) * kHeadDim, kHeadDim);
    take(qkv, 2 * kKeyHeads * kHeadDim + h * kGroup, kGroup);
    take(z, h * kGroup, kGroup);
  }
  return out;
}

// The same file with ssm_in instead of attn_qkv and attn_gate.
std::string with_ssm_in(const TinyModel& model, const GgufFile& file) {
  GgufWriter writer;
  add_metadata(writer, model);
  const std::string qkv = "attn_qkv.weight", gate = "attn_gate.weight";
  for (const GgufTensor& tensor : file.tensors()) {
    const std::string name(tensor.name);
    if (name.ends_with(gate)) continue;
    if (name.ends_with(qkv)) {
      const std::string layer = name.substr(0, name.size() - qkv.size());
      const std::vector<float> packed = pack_ssm_in(dequantized(file, name), dequantized(file, layer + gate));
      writer.add_tensor(layer + "ssm_in.weight", {static_cast<int64_t>(packed.size() / kDim), kDim}, k_f32, packed);
    } else {
      const std::span<const std::byte> bytes = tensor.view.bytes;
      writer.add_tensor(name, tensor.view.shape, *tensor.view.format,
                        std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
    }
  }
  return writer.bytes();
}

std::vector<float> logits_of(const std::string& file, const std::vector<TokenId>& tokens) {
  const std::unique_ptr<LoadedModel> model =
      std::move(LoadedModel::load(file, *find_backend("reference").value()).value());
  StepRunner runner(*model);
  TestSequence sequence = runner.new_sequence(0);
  return runner.step({{&sequence, 0, tokens}})[0].logits;
}

TEST(Qwen3Next, both_layouts_of_the_delta_net_inputs_are_the_same_model) {
  const TinyModel& tiny = tiny_model("qwen3next");
  const std::string separate = make_gguf(tiny);
  const GgufFile file = std::move(GgufFile::parse(std::as_bytes(std::span(separate)), "tiny.gguf").value());
  const std::string packed = with_ssm_in(tiny, file);
  ASSERT_NE(packed, separate);
  const std::vector<TokenId> tokens = random_tokens(40, 1);
  EXPECT_EQ(logits_of(packed, tokens), logits_of(separate, tokens));
}

}  // namespace
}  // namespace zinc
