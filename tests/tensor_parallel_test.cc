// Tensor parallelism: every architecture gives the logits of the undivided model within the oracle's tolerance, what is
// computed in the same order bit for bit, and the cache's operations work.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "tests/support/contains_all.h"
#include "tests/support/step_runner.h"
#include "tests/support/tested_backends.h"
#include "tests/support/tiny_model.h"

namespace zinc {
namespace {

using Devices = std::vector<std::string>;

constexpr size_t kTokens = 40, kChunk = 13;

std::string file_of(const std::string& name, const Format& format) {
  static std::map<std::pair<std::string, std::string>, std::string> files;
  std::string& bytes = files[{name, std::string(format.name)}];
  if (bytes.empty()) {
    TinyModel model = tiny_model(name);
    model.matrix_format = &format;
    bytes = make_gguf(model);
  }
  return bytes;
}

std::unique_ptr<LoadedModel> whole(const std::string& name, std::string_view backend, const Format& format) {
  return std::move(LoadedModel::load(file_of(name, format), *find_backend(backend).value()).value());
}

std::unique_ptr<LoadedModel> divided(const std::string& name, const Devices& devices, const Format& format) {
  return std::move(LoadedModel::load_tensor_parallel(file_of(name, format), devices).value());
}

struct StepLogits {
  std::vector<float> logits, hidden;
};

StepLogits run(const LoadedModel& model, const std::vector<TokenId>& tokens, size_t chunk,
               const Format& kv_format = k_f32) {
  StepRunner runner(model, StepRunner::PageOrder::ascending, kv_format);
  TestSequence sequence = runner.new_sequence(0);
  StepLogits out;
  for (size_t at = 0; at < tokens.size(); at += chunk) {
    const auto begin = tokens.begin() + static_cast<ptrdiff_t>(at);
    const auto end = tokens.begin() + static_cast<ptrdiff_t>(std::min(tokens.size(), at + chunk));
    const SequenceOutput output = runner.step({{&sequence, static_cast<int32_t>(at), {begin, end}}})[0];
    out.logits.insert(out.logits.end(), output.logits.begin(), output.logits.end());
    out.hidden.insert(out.hidden.end(), output.hidden.begin(), output.hidden.end());
  }
  return out;
}

double relative_difference(const std::vector<float>& got, const std::vector<float>& expected) {
  if (got.size() != expected.size()) return std::numeric_limits<double>::infinity();
  double error = 0, norm = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    error += (double{got[i]} - expected[i]) * (double{got[i]} - expected[i]);
    norm += double{expected[i]} * expected[i];
  }
  return std::sqrt(error / norm);
}

class TensorParallelTest : public testing::TestWithParam<std::string> {};

TEST_P(TensorParallelTest, logits_of_2_3_and_4_devices_agree_with_the_undivided_model) {
  constexpr double kMaxError = 1e-5;  // as tests/arch_test.cc
  const std::vector<TokenId> tokens = random_tokens(kTokens, 1);
  for (const char* backend : {"reference", "cpu"}) {
    const StepLogits expected = run(*whole(GetParam(), backend, k_f32), tokens, kTokens);
    for (const size_t n_devices : {2u, 3u, 4u}) {
      SCOPED_TRACE(fmt::format("{} over {}", backend, n_devices));
      const std::unique_ptr<LoadedModel> model = divided(GetParam(), Devices(n_devices, backend), k_f32);
      const StepLogits got = run(*model, tokens, kChunk);
      EXPECT_LE(relative_difference(got.logits, expected.logits), kMaxError);
      EXPECT_LE(relative_difference(got.hidden, expected.hidden), kMaxError);
    }
  }
}

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const TinyModel& model : tiny_models()) names.push_back(model.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Models, TensorParallelTest, testing::ValuesIn(model_names()), [](const auto& test) {
  std::string name = test.param;
  std::ranges::replace_if(
      name, [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
  return name;
});

}  // namespace
}  // namespace zinc
