// Every architecture of the registry on every backend, with tiny random files: it runs, it agrees with the reference
// interpreter, and whatever is missing, misshapen or absurd in a file is refused by name.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "tests/support/gguf_writer.h"
#include "tests/support/step_runner.h"
#include "tests/support/tiny_model.h"

namespace zinc {
namespace {

constexpr size_t kTokens = 40, kChunk = 13;
// Backends may round activations to 8 bits, which now and then also changes the choice of an expert; a wrong graph
// differs by about 1.
constexpr double kMaxRelativeError = 0.3;

const BackendInfo& reference() { return *find_backend("reference").value(); }

// The logits after each of the tokens. One by one or in chunks.
std::vector<float> run(const LoadedModel& model, const std::vector<TokenId>& tokens, size_t chunk) {
  StepRunner runner(model);
  TestSequence sequence = runner.new_sequence(0);
  std::vector<float> out;
  for (size_t at = 0; at < tokens.size(); at += chunk) {
    const auto begin = tokens.begin() + static_cast<ptrdiff_t>(at);
    const auto end = tokens.begin() + static_cast<ptrdiff_t>(std::min(tokens.size(), at + chunk));
    const std::vector<float> logits = runner.step({{&sequence, static_cast<int32_t>(at), {begin, end}}})[0].logits;
    out.insert(out.end(), logits.begin(), logits.end());
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

class ArchTest : public testing::TestWithParam<std::string> {
 protected:
  const TinyModel& tiny() const { return tiny_model(GetParam()); }
  const std::vector<TinyTensor>& tensors() const {
    static std::map<std::string, std::vector<TinyTensor>> cache;
    const auto [place, is_new] = cache.try_emplace(GetParam());
    if (is_new) place->second = find_tensors(tiny()).value();
    return place->second;
  }
};

TEST_P(ArchTest, runs_on_every_backend_as_on_the_reference) {
  const Result<std::vector<TinyTensor>> tensors = find_tensors(tiny());
  ASSERT_TRUE(tensors.ok()) << tensors.error().message;
  const std::string file = make_gguf(tiny(), tensors.value());
  const std::vector<TokenId> tokens = random_tokens(kTokens, 1);
  const std::vector<float> expected = run(*LoadedModel::load(file, reference()).value(), tokens, kTokens);
  for (float x : expected) ASSERT_TRUE(std::isfinite(x));
  for (const BackendInfo* const* backend = kBackends; *backend; ++backend) {
    if (!(*backend)->usable()) continue;  // not on this machine
    SCOPED_TRACE((*backend)->name);
    const Result<std::unique_ptr<LoadedModel>> model = LoadedModel::load(file, **backend);
    ASSERT_TRUE(model.ok()) << model.error().message;
    const double allowed = *backend == &reference() ? 0 : kMaxRelativeError;
    EXPECT_LE(relative_difference(run(*model.value(), tokens, 1), expected), allowed) << "one by one";
    EXPECT_LE(relative_difference(run(*model.value(), tokens, kChunk), expected), allowed) << "in chunks";
  }
}

TEST_P(ArchTest, every_weight_of_the_file_is_in_a_graph) {
  const std::unique_ptr<LoadedModel> model =
      std::move(LoadedModel::load(make_gguf(tiny(), tensors()), reference()).value());
  std::vector<const Graph*> graphs = {&model->model().graph};
  if (model->model().draft) graphs.push_back(&*model->model().draft);
  for (const TinyTensor& tensor : tensors()) {
    const bool used = std::ranges::any_of(graphs, [&](const Graph* g) { return bool(g->find(tensor.name)); });
    EXPECT_TRUE(used) << tensor.name << " is in the file but in no graph";
  }
}

TEST(DraftBlock, is_left_out_unless_it_is_asked_for) {
  for (const char* name : {"qwen3next", "qwen35", "qwen35moe"}) {
    const std::vector<TinyTensor> all = find_tensors(tiny_model(name)).value();
    const std::string whole = make_gguf(tiny_model(name), all);
    const GgufFile file = std::move(GgufFile::parse(std::as_bytes(std::span(whole)), "tiny.gguf").value());
    const Model drafting = std::move(read_model(file, Draft::read).value()),
                plain = std::move(read_model(file).value());
    EXPECT_TRUE(drafting.draft.has_value()) << name;
    EXPECT_FALSE(plain.draft.has_value()) << name;
    EXPECT_EQ(plain.caches.size() + 1, drafting.caches.size()) << name << ": its block keeps nothing";

    std::vector<TinyTensor> trunk = all;
    std::erase_if(trunk, [](const TinyTensor& t) { return t.name.starts_with("blk.3."); });
    const std::string bytes = make_gguf(tiny_model(name), trunk);
    const GgufFile without = std::move(GgufFile::parse(std::as_bytes(std::span(bytes)), "tiny.gguf").value());
    const Result<Model> read = read_model(without);
    EXPECT_TRUE(read.ok()) << read.error().message;
    EXPECT_FALSE(read_model(without, Draft::read).ok()) << name;
  }
}

// YaRN stretches the full layers alone.
TEST(Gemma, sliding_layers_turn_as_they_did_before_the_full_ones_were_stretched) {
  for (const char* name : {"gemma3", "gemma4"}) {
    TinyModel model = tiny_model(name);
    std::erase_if(model.metadata, [](const TinyKey& key) { return key.name.starts_with("rope.scaling."); });
    model.metadata.push_back({"rope.scaling.type", std::string("yarn"), false});
    model.metadata.push_back({"rope.scaling.factor", 8.0f, false});
    model.metadata.push_back({"rope.scaling.original_context_length", 64u, false});
    const std::string bytes = make_gguf(model);
    const GgufFile file = std::move(GgufFile::parse(std::as_bytes(std::span(bytes)), "tiny.gguf").value());
    const Model read = std::move(read_model(file).value());
    int n_sliding = 0, n_full = 0;
    for (const Node& node : read.graph.nodes()) {
      if (node.op != Op::rope) continue;
      const RopeParams& rope = node.as<RopeParams>();
      const bool slides = rope.position_scale == 1;
      (slides ? n_sliding : n_full) += 1;
      EXPECT_EQ(rope.amplitude == 1, slides) << name << ", a layer that " << (slides ? "slides" : "does not slide");
    }
    EXPECT_GT(n_sliding, 0) << name;
    EXPECT_GT(n_full, 0) << name;
  }
}

// ---- files that are not right ----

struct Attempt {
  bool loaded = false;
  std::string message;
};

// Loads on the reference backend; what loads must also run, and give numbers. A crash ends the test program.
Attempt attempt(const std::string& file) {
  const Result<std::unique_ptr<LoadedModel>> model = LoadedModel::load(file, reference());
  if (!model.ok()) return {false, model.error().message};
  for (float x : run(*model.value(), random_tokens(3, 3), 2)) {
    if (std::isfinite(x)) continue;
    ADD_FAILURE() << "loads, but logits are not finite";
    break;
  }
  return {true, ""};
}

void expect_refused(const Attempt& outcome, const std::string& culprit) {
  EXPECT_FALSE(outcome.loaded) << "loads";
  EXPECT_NE(outcome.message.find("tiny.gguf"), std::string::npos) << "names no file: " << outcome.message;
  EXPECT_NE(outcome.message.find(culprit), std::string::npos) << "does not name " << culprit << ": " << outcome.message;
}

TEST_P(ArchTest, a_file_without_a_required_weight_is_refused_by_name) {
  for (size_t i = 0; i < tensors().size(); ++i) {
    SCOPED_TRACE(tensors()[i].name);
    std::vector<TinyTensor> fewer = tensors();
    fewer.erase(fewer.begin() + static_cast<ptrdiff_t>(i));
    const Attempt outcome = attempt(make_gguf(tiny(), fewer));
    if (tensors()[i].required) {
      expect_refused(outcome, tensors()[i].name);
    } else if (!outcome.loaded) {
      EXPECT_NE(outcome.message.find("tensor '"), std::string::npos) << outcome.message;
    }
  }
}

// One more row, or rows twice as long.
Shape grown(const Shape& shape, int dim) {
  std::vector<int64_t> dims;
  for (int i = 0; i < shape.n_dims(); ++i) {
    dims.push_back(i != dim ? shape[i] : i == shape.n_dims() - 1 ? 2 * shape[i] : shape[i] + 1);
  }
  return Shape(dims);
}

TEST_P(ArchTest, a_misshapen_weight_is_refused_by_name) {
  for (size_t i = 0; i < tensors().size(); ++i) {
    const bool is_table =
        tensors()[i].name == "token_embd.weight";  // its rows are what says how large the vocabulary is
    for (int dim = is_table ? 1 : 0; dim < tensors()[i].shape.n_dims(); ++dim) {
      SCOPED_TRACE(fmt::format("{} dimension {}", tensors()[i].name, dim));
      std::vector<TinyTensor> changed = tensors();
      changed[i].shape = grown(changed[i].shape, dim);
      expect_refused(attempt(make_gguf(tiny(), changed)), "'" + tensors()[i].name + "'");
    }
  }
}

TEST_P(ArchTest, a_file_without_a_required_key_is_refused_by_name) {
  for (size_t i = 0; i < tiny().metadata.size(); ++i) {
    const TinyKey& key = tiny().metadata[i];
    SCOPED_TRACE(key.name);
    TinyModel fewer = tiny();
    fewer.metadata.erase(fewer.metadata.begin() + static_cast<ptrdiff_t>(i));
    const Attempt outcome = attempt(make_gguf(fewer, tensors()));
    if (key.required) expect_refused(outcome, "'" + tiny().architecture + "." + key.name + "'");
  }
}

struct Absurdity {
  const char* what;
  TinyValue value;
  bool must_fail;  // else it may also load and run
};

std::vector<Absurdity> absurdities(const TinyValue& value) {
  const Absurdity text{"text", std::string("many"), true}, empty{"an empty list", std::vector<uint32_t>{}, true};
  if (std::holds_alternative<std::string>(value)) {
    return {{"a number", 7u, true}, {"unknown", std::string("sideways"), true}};
  }
  if (std::holds_alternative<float>(value)) {
    return {text,
            empty,
            {"not a number", std::numeric_limits<float>::quiet_NaN(), true},
            {"infinite", std::numeric_limits<float>::infinity(), true},
            {"-1", -1.0f, false},
            {"0", 0.0f, false},
            {"1e30", 1e30f, false},
            {"1e-30", 1e-30f, false}};
  }
  return {text,
          empty,
          {"-1", int64_t{-1}, true},
          {"2^40", int64_t{1} << 40, true},
          {"-2^63", std::numeric_limits<int64_t>::min(), true},
          {"half", 0.5f, true},
          {"0", 0u, false},
          {"3", 3u, false},
          {"2^20", 1u << 20, false},
          {"2^31-1", (1u << 31) - 1, false},
          {"a list of 2^31-1", std::vector<uint32_t>(8, (1u << 31) - 1), false},
          {"a list of zeros", std::vector<uint32_t>(8, 0u), false}};
}

TEST_P(ArchTest, absurd_metadata_is_refused_by_name_or_runs) {
  for (size_t i = 0; i < tiny().metadata.size(); ++i) {
    for (const Absurdity& absurdity : absurdities(tiny().metadata[i].value)) {
      SCOPED_TRACE(fmt::format("{} is {}", tiny().metadata[i].name, absurdity.what));
      TinyModel changed = tiny();
      changed.metadata[i].value = absurdity.value;
      const Attempt outcome = attempt(make_gguf(changed, tensors()));
      if (absurdity.must_fail) {
        expect_refused(outcome, "'" + tiny().architecture + "." + tiny().metadata[i].name + "'");
      } else if (!outcome.loaded) {
        EXPECT_NE(outcome.message.find("tiny.gguf"), std::string::npos) << "names no file: " << outcome.message;
      }
    }
  }
}

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const TinyModel& model : tiny_models()) names.push_back(model.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(TinyModels, ArchTest, testing::ValuesIn(model_names()), [](const auto& info) {
  std::string name = info.param;
  std::ranges::replace_if(
      name, [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
  return name;
});

}  // namespace
}  // namespace zinc
