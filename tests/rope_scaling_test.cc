// Sequences with an extended context in the same steps as others: each has the logits of a run on a file that has its
// own RoPE scaling for all sequences. On every backend.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "graph/rope.h"
#include "tests/support/step_runner.h"
#include "tests/support/tested_backends.h"
#include "tests/support/tiny_model.h"

namespace zinc {
namespace {

using Logits = std::vector<float>;
using Files = std::map<std::string, std::string>;

// Without extension metadata: the prefill and decode kernels of adjacent pairs, of halves with norms of q and k, of
// layers without RoPE, of sliding windows and of recurrent layers.
constexpr const char* kModels[] = {"llama", "qwen3", "smollm3", "gemma3", "qwen35"};

TinyModel model_without_extension(std::string_view name) {
  TinyModel model = tiny_model(name);
  std::erase_if(model.metadata, [](const TinyKey& key) { return key.name.starts_with("rope.scaling"); });
  return model;
}

std::string plain_file(std::string_view name) { return make_gguf(model_without_extension(name)); }

std::string yarn_file(std::string_view name, int factor) {
  TinyModel model = model_without_extension(name);
  model.metadata.push_back({"rope.scaling.type", std::string("yarn")});
  model.metadata.push_back({"rope.scaling.factor", static_cast<float>(factor)});
  model.metadata.push_back({"rope.scaling.original_context_length", uint32_t{kTinyContext}});
  return make_gguf(model);
}

std::vector<float> short_factors() { return std::vector<float>(16, 1.25f); }
std::vector<float> long_factors() {
  std::vector<float> factors;
  for (int i = 0; i < 16; ++i) factors.push_back(1 + 0.25f * static_cast<float>(i));
  return factors;
}

// "llama" with tensors of these names in place of its own.
std::string llama_file(const std::map<std::string, std::vector<float>>& factors, const std::vector<TinyKey>& keys) {
  TinyModel model = tiny_model("llama");
  std::erase_if(model.optional_tensors, [](const TinyTensor& t) { return t.name == "rope_freqs.weight"; });
  const std::vector<TinyTensor> tensors = find_tensors(model).value();
  model.metadata.insert(model.metadata.end(), keys.begin(), keys.end());
  GgufWriter writer;
  for (const auto& [name, values] : factors) writer.add_tensor(name, {16}, k_f32, values);
  return make_gguf(model, tensors, std::move(writer));
}

std::unique_ptr<LoadedModel> load(std::string bytes, const BackendInfo& backend) {
  return std::move(LoadedModel::load(std::move(bytes), backend).value());
}

// One sequence of the test: a prompt, then decode.
struct Part {
  int rope_scaling;
  int slot;
  std::vector<TokenId> tokens;
};
constexpr size_t kPrompt = 70, kLength = 76;

std::vector<Part> parts_with(std::initializer_list<int> scalings) {
  std::vector<Part> parts;
  for (const int scaling : scalings) {
    const int i = static_cast<int>(parts.size());
    parts.push_back({scaling, i + 3, random_tokens(kLength, 11)});  // the same tokens: only the scaling differs
  }
  return parts;
}

// The logits of each part's tokens, with prompts and decode of all parts in the same steps. Parts start one step after
// the other.
std::vector<Logits> run_together(StepRunner& runner, const std::vector<Part>& parts) {
  std::vector<TestSequence> sequences;
  for (const Part& part : parts) {
    sequences.push_back(runner.new_sequence(part.slot));
    sequences.back().rope_scaling = part.rope_scaling;
  }
  std::vector<Logits> out(parts.size());
  std::vector<size_t> n_fed(parts.size(), 0);
  const size_t chunk = std::min<size_t>(40, runner.max_exact_chunk());
  for (size_t step = 0; std::ranges::min(n_fed) < kLength; ++step) {
    std::vector<SequenceTokens> batch;
    std::vector<size_t> members;
    for (size_t i = 0; i < parts.size() && i <= step; ++i) {
      const size_t n =
          n_fed[i] < kPrompt ? std::min(chunk, kPrompt - n_fed[i]) : std::min<size_t>(1, kLength - n_fed[i]);
      if (n == 0) continue;
      const auto begin = parts[i].tokens.begin() + static_cast<ptrdiff_t>(n_fed[i]);
      batch.push_back({&sequences[i], static_cast<int32_t>(n_fed[i]), {begin, begin + static_cast<ptrdiff_t>(n)}});
      members.push_back(i);
      n_fed[i] += n;
    }
    const std::vector<SequenceOutput> outputs = runner.step(batch);
    for (size_t k = 0; k < members.size(); ++k) {
      out[members[k]].insert(out[members[k]].end(), outputs[k].logits.begin(), outputs[k].logits.end());
    }
  }
  return out;
}

// The logits of these tokens on a file that rotates every sequence alike.
Logits run_alone(std::string bytes, const BackendInfo& backend, const Part& part) {
  const std::unique_ptr<LoadedModel> model = load(std::move(bytes), backend);
  StepRunner runner(*model);
  return run_together(runner, {{0, part.slot, part.tokens}})[0];
}

class RopeScalingTest : public testing::TestWithParam<const BackendInfo*> {
 protected:
  std::vector<Logits> together(std::string bytes, const std::vector<Part>& parts, int n_scalings) {
    const std::unique_ptr<LoadedModel> model = load(std::move(bytes), *GetParam());
    StepRunner runner(*model, StepRunner::PageOrder::ascending, k_f32, 1, n_scalings);
    return run_together(runner, parts);
  }
};

TEST_P(RopeScalingTest, sequences_of_one_step_have_the_bits_of_files_with_their_factors) {
  for (const char* name : kModels) {
    const std::vector<Part> parts = parts_with({0, 1, 3, 0, 2});
    const std::vector<Logits> batch = together(plain_file(name), parts, kMaxRopeScalings);
    EXPECT_EQ(batch[0], run_alone(plain_file(name), *GetParam(), parts[0])) << name;
    EXPECT_EQ(batch[3], batch[0]) << name;
    for (const size_t i : {1u, 2u, 4u}) {
      EXPECT_NE(batch[i], batch[0]) << name;
      EXPECT_EQ(batch[i], run_alone(yarn_file(name, parts[i].rope_scaling + 1), *GetParam(), parts[i]))
          << name << ", factor " << parts[i].rope_scaling + 1;
    }
  }
}

TEST_P(RopeScalingTest, longrope_has_the_short_or_the_long_factors) {
  const std::vector<TinyKey> keys = {{"rope.scaling.type", std::string("longrope")},
                                     {"rope.scaling.original_context_length", uint32_t{kTinyContext / 4}},
                                     {"rope.scaling.attn_factor", 1.19f}};
  const std::string longrope =
      llama_file({{"rope_factors_short.weight", short_factors()}, {"rope_factors_long.weight", long_factors()}}, keys);
  const std::vector<TinyKey> attention = {keys[2]};
  const std::vector<Part> parts = parts_with({0, 1});
  const std::vector<Logits> batch = together(longrope, parts, 2);
  EXPECT_EQ(batch[0],
            run_alone(llama_file({{"rope_freqs.weight", short_factors()}}, attention), *GetParam(), parts[0]));
  EXPECT_EQ(batch[1], run_alone(llama_file({{"rope_freqs.weight", long_factors()}}, attention), *GetParam(), parts[1]));
}

std::string name_of(const testing::TestParamInfo<const BackendInfo*>& info) {
  std::string name(info.param->name);
  std::ranges::replace(name, ':', '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(All, RopeScalingTest, testing::ValuesIn(available_backends()), name_of);

}  // namespace
}  // namespace zinc
