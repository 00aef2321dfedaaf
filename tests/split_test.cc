// Models split over several devices: every architecture gives the logits of the unsplit model, bit for bit if the
// devices are of one kind; and the engine serves on a split model as on one device.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "tests/support/step_runner.h"
#include "tests/support/tested_backends.h"
#include "tests/support/tiny_model.h"

namespace zinc {
namespace {

using Devices = std::vector<std::string>;
using StagesOf = std::function<split::Stages(const Graph&)>;

constexpr size_t kTokens = 40, kChunk = 13;

std::string model_text(const TinyModel& model) {
  std::string name = model.name;
  std::ranges::replace_if(
      name, [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
  return name;
}

const TinyModel& with_matrices(const TinyModel& model, const Format& format) {
  static std::map<std::pair<std::string, std::string>, TinyModel> models;
  TinyModel& copy = models.try_emplace({model.name, std::string(format.name)}, model).first->second;
  copy.matrix_format = &format;
  return copy;
}

// Whole layers, as many on each device as on the others; fewer stages if the model cannot be cut so often.
split::Stages layers_over(const Graph& graph, size_t n_devices) {
  std::vector<int> cuts = layer_cuts(graph);
  if (cuts.front() == 0) cuts.erase(cuts.begin());
  split::Stages stages;
  for (size_t d = 0; d < n_devices; ++d) {
    if (d > 0) {
      const size_t at = cuts.size() * d / n_devices;
      stages.cuts.push_back(cuts[at]);
    }
    stages.devices.push_back(d);
  }
  return stages;
}

struct StepLogits {
  std::vector<float> logits, hidden;
};

StepLogits run(const LoadedModel& model, const std::vector<TokenId>& tokens, size_t chunk) {
  StepRunner runner(model);
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

class SplitTest : public testing::TestWithParam<std::string> {
 protected:
  const TinyModel& tiny() const { return tiny_model(GetParam()); }
  const std::string& file(const Format& format) const {
    static std::map<std::pair<std::string, std::string>, std::string> files;
    std::string& bytes = files[{GetParam(), std::string(format.name)}];
    if (bytes.empty()) bytes = make_gguf(with_matrices(tiny(), format));
    return bytes;
  }
  std::unique_ptr<LoadedModel> whole(std::string_view backend, const Format& format) const {
    return std::move(LoadedModel::load(file(format), *find_backend(backend).value()).value());
  }
  std::unique_ptr<LoadedModel> split(const Devices& devices, const Format& format, const StagesOf& stages) const {
    return std::move(LoadedModel::load_split(file(format), devices, stages).value());
  }
  bool can_cut(size_t n_devices) const {
    const std::unique_ptr<LoadedModel> model = whole("reference", k_f32);
    const std::vector<int> cuts = layer_cuts(model->model().graph);
    return cuts.size() >= n_devices;
  }
};

StagesOf over(size_t n_devices) {
  return [n_devices](const Graph& graph) { return layers_over(graph, n_devices); };
}

TEST_P(SplitTest, layers_over_devices_of_one_kind_give_the_same_bits) {
  const std::vector<TokenId> tokens = random_tokens(kTokens, 1);
  const Format& q8_0 = *find_format("q8_0");
  for (const char* backend : {"reference", "cpu"}) {
    const StepLogits expected = run(*whole(backend, q8_0), tokens, kChunk);
    for (const size_t n_devices : {2u, 3u}) {
      if (!can_cut(n_devices)) continue;
      SCOPED_TRACE(fmt::format("{} over {}", backend, n_devices));
      const StepLogits got = run(*split(Devices(n_devices, backend), q8_0, over(n_devices)), tokens, kChunk);
      EXPECT_EQ(got.logits, expected.logits);
      EXPECT_EQ(got.hidden, expected.hidden);
    }
  }
}

TEST_P(SplitTest, layers_over_different_devices_agree_with_the_reference) {
  constexpr double kMaxError = 1e-5;  // as tests/arch_test.cc
  const std::vector<TokenId> tokens = random_tokens(kTokens, 1);
  const StepLogits expected = run(*whole("reference", k_f32), tokens, kTokens);
  for (const Devices& devices : {Devices{"cpu", "reference"}, Devices{"reference", "cpu"}}) {
    const StepLogits got = run(*split(devices, k_f32, over(2)), tokens, kChunk);
    EXPECT_LE(relative_difference(got.logits, expected.logits), kMaxError) << devices[0];
    EXPECT_LE(relative_difference(got.hidden, expected.hidden), kMaxError) << devices[0];
  }
}

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const TinyModel& model : tiny_models()) names.push_back(model.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Models, SplitTest, testing::ValuesIn(model_names()),
                         [](const auto& test) { return model_text(tiny_model(test.param)); });

}  // namespace
}  // namespace zinc
