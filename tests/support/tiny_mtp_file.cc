#include "tests/support/tiny_mtp_file.h"

#include "base/atomic_file.h"
#include "gguf/gguf_file.h"
#include "model/model.h"
#include "tests/support/serving.h"
#include "tests/support/test_files.h"

namespace zinc {
namespace {

GgufWriter vocabulary_of(const GgufFile& target) {
  GgufWriter writer;
  for (const std::string_view key : {"tokenizer.ggml.model", "tokenizer.ggml.pre"}) {
    writer.add(key, target.get<std::string_view>(key).value());
  }
  for (const std::string_view key : {"tokenizer.ggml.tokens", "tokenizer.ggml.merges"}) {
    const std::vector<std::string_view> texts = target.get<std::vector<std::string_view>>(key).value();
    writer.add(key, std::vector<std::string>(texts.begin(), texts.end()));
  }
  const std::vector<int64_t> types = target.get<std::vector<int64_t>>("tokenizer.ggml.token_type").value();
  writer.add("tokenizer.ggml.token_type", std::vector<int32_t>(types.begin(), types.end()));
  return writer;
}

Status try_to_read(const std::string& bytes, const Model& target) {
  ZINC_TRY(file, GgufFile::parse(std::as_bytes(std::span(bytes)), "mtp.gguf"));
  ZINC_TRY(graph, read_mtp_file(file, target));
  return ok_status();
}

}  // namespace

TinyModel tiny_mtp_file(const GgufFile& target) {
  const auto count = [&](const std::string& key) {
    return static_cast<uint32_t>(target.get<int64_t>("gemma4." + key).value());
  };
  constexpr uint32_t kLayers = 4;
  Metadata metadata(target, "gemma4");
  const std::vector<int64_t> kv_heads =
      metadata.per_layer("attention.head_count_kv", static_cast<int>(count("block_count")));
  const uint32_t full = static_cast<uint32_t>(kv_heads.back()), sliding = static_cast<uint32_t>(kv_heads.front());
  TinyModel model{"gemma4-assistant", "gemma4-assistant", {}};
  model.matrix_format = find_format("f32");
  model.metadata = {{"context_length", count("context_length")},
                    {"embedding_length", 32u},
                    {"embedding_length_out", count("embedding_length")},
                    {"block_count", kLayers},
                    {"nextn_predict_layers", kLayers, false},
                    {"feed_forward_length", 48u},
                    {"attention.head_count", 4u},
                    {"attention.head_count_kv", std::vector<uint32_t>{sliding, sliding, sliding, full}, false},
                    {"attention.shared_kv_layers", kLayers, false},
                    {"attention.layer_norm_rms_epsilon", 1e-6f},
                    {"attention.sliding_window", count("attention.sliding_window")},
                    {"attention.sliding_window_pattern", std::vector<bool>{true, true, true, false}},
                    {"rope.freq_base", 1e6f, false},
                    {"rope.freq_base_swa", 1e4f, false}};
  for (const std::string key : {"attention.key_length", "attention.key_length_swa"}) {
    model.metadata.push_back({key, count(key)});
  }
  for (const std::string key :
       {"attention.value_length", "attention.value_length_swa", "rope.dimension_count", "rope.dimension_count_swa"}) {
    model.metadata.push_back({key, count(key), false});
  }
  return model;
}

Result<std::vector<TinyTensor>> find_mtp_tensors(const TinyModel& mtp_file, const GgufFile& target) {
  ZINC_TRY(model, read_model(target));
  const int64_t dim = std::get<uint32_t>(mtp_file.find("embedding_length")->value);
  std::vector<TinyTensor> tensors = {{"token_embd.weight", {model.config.vocab_size, dim}}};
  for (int64_t l = 0; l < 4; ++l) tensors.push_back({fmt::format("blk.{}.layer_output_scale.weight", l), {1}});
  for (;;) {
    const Status status = try_to_read(make_gguf(mtp_file, tensors), model);
    if (status.ok()) return tensors;
    std::optional<TinyTensor> missing = missing_tensor(status.error().message);
    if (!missing) return status.error();
    tensors.push_back(std::move(*missing));
  }
}

std::filesystem::path mtp_file_path(std::string_view target) {
  const GgufFile file = std::move(GgufFile::open(model_path(target)).value());
  const TinyModel model = tiny_mtp_file(file);
  static const TestFolder folder;  // until the process ends: model files are mapped
  const std::filesystem::path path = folder / fmt::format("{}-mtp.gguf", target);
  const std::string bytes = make_gguf(model, find_mtp_tensors(model, file).value(), vocabulary_of(file));
  ZINC_CHECK(write_file_atomically(path, bytes).ok());
  return path;
}

}  // namespace zinc
