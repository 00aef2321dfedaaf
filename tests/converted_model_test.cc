// Tiny checkpoints of tests/data/convert, made by the package transformers: converted files give the logits of its own
// modeling code and the tokens of the checkpoint's own tokenizer. tests/convert/make_checkpoints.py makes them anew.
#include "convert/convert.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <set>

#include "base/json.h"
#include "gguf/gguf_file.h"
#include "model/architecture.h"
#include "tests/support/step_runner.h"
#include "tests/support/test_files.h"
#include "text/tokenizer.h"

namespace zinc {
namespace {

namespace fs = std::filesystem;

const fs::path kCheckpoints = fs::path(ZINC_SOURCE_DIR) / "tests" / "data" / "convert";

std::vector<std::string> checkpoint_names() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(kCheckpoints)) names.push_back(entry.path().filename().string());
  std::ranges::sort(names);
  return names;
}

json::value expected_of(const std::string& name) {
  return parse_json(contents(kCheckpoints / name / "expected.json")).value();
}

Status convert(const std::string& name, std::string_view type, const fs::path& path) {
  ZINC_TRY(conversion, plan_conversion(kCheckpoints / name, {.format = find_conversion_format(type)}));
  return write_gguf(conversion, path, {});
}

// The logits after each token, on the reference backend.
std::vector<float> logits_of(const fs::path& path, const json::value& expected) {
  auto loaded = LoadedModel::load(contents(path), *find_backend("reference").value());
  EXPECT_TRUE(loaded.ok()) << loaded.error().message;
  if (!loaded.ok()) return {};
  StepRunner runner(*loaded.value());
  TestSequence sequence = runner.new_sequence(0);
  std::vector<TokenId> tokens;
  for (const json::value& id : expected.at("tokens").as_array()) tokens.push_back(id.to_number<TokenId>());
  return runner.step({{.sequence = &sequence, .position = 0, .tokens = tokens}})[0].logits;
}

// L2 norm of the difference over that of the expected logits.
double logit_error(const std::string& name, const std::vector<float>& logits) {
  const json::value expected = expected_of(name);
  const std::string bytes = contents(kCheckpoints / name / "expected.f32");
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  const json::array& positions = expected.at("positions").as_array();
  const size_t n_vocab = values.size() / positions.size();
  double error = 0, norm = 0;
  for (size_t i = 0; i < positions.size(); ++i) {
    const size_t row = positions[i].to_number<size_t>() * n_vocab;
    if (row + n_vocab > logits.size()) return INFINITY;
    for (size_t j = 0; j < n_vocab; ++j) {
      const double difference = double{logits[row + j]} - values[i * n_vocab + j];
      error += difference * difference;
      norm += double{values[i * n_vocab + j]} * values[i * n_vocab + j];
    }
  }
  return std::sqrt(error / norm);
}

class ConvertTest : public testing::TestWithParam<std::string> {};

TEST_P(ConvertTest, logits_are_those_of_transformers) {
  const TestFolder folder;
  const fs::path path = folder / "out.gguf";
  const Status converted = convert(GetParam(), "f32", path);
  ASSERT_TRUE(converted.ok()) << converted.error().message;
  const double error = logit_error(GetParam(), logits_of(path, expected_of(GetParam())));
  RecordProperty("relative_error", std::to_string(error));
  EXPECT_LE(error, 1e-4);
}

// Matrices in the checkpoint's own type are exact; q8_0 rounds them.
TEST_P(ConvertTest, smaller_types_have_about_the_same_logits) {
  struct Limit {
    const char* type;
    double error;
  };
  for (const Limit& limit : {Limit{"", 2e-2}, Limit{"q8_0", 0.2}}) {
    const TestFolder folder;
    const fs::path path = folder / "out.gguf";
    const Status converted = convert(GetParam(), limit.type, path);
    ASSERT_TRUE(converted.ok()) << converted.error().message;
    EXPECT_LE(logit_error(GetParam(), logits_of(path, expected_of(GetParam()))), limit.error) << limit.type;
  }
}

TEST_P(ConvertTest, texts_have_the_tokens_of_the_checkpoints_tokenizer) {
  const TestFolder folder;
  ASSERT_TRUE(convert(GetParam(), "q8_0", folder / "out.gguf").ok());
  const auto file = GgufFile::open(folder / "out.gguf");
  ASSERT_TRUE(file.ok()) << file.error().message;
  const auto tokenizer = Tokenizer::load(file.value());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  const json::value expected = expected_of(GetParam());
  for (const json::value& pair : expected.at("encoded").as_array()) {
    const std::string_view text = pair.at(0).as_string();
    std::vector<TokenId> ids, expected_ids;
    for (const json::value& id : pair.at(1).as_array()) expected_ids.push_back(id.to_number<TokenId>());
    tokenizer.value().encode(text, {}, ids);
    EXPECT_EQ(ids, expected_ids) << text;
  }
  EXPECT_TRUE(file.value().find("tokenizer.chat_template"));
  EXPECT_EQ(file.value().get<int64_t>("general.sampling.top_k").value(), 20);
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, ConvertTest, testing::ValuesIn(checkpoint_names()), [](const auto& info) {
  std::string name = info.param;
  std::ranges::replace(name, '-', '_');
  return name;
});

TEST(ConvertCoverage, every_architecture_has_a_checkpoint) {
  std::set<std::string> covered;
  for (const std::string& name : checkpoint_names()) {
    const auto conversion = plan_conversion(kCheckpoints / name, {});
    ASSERT_TRUE(conversion.ok()) << conversion.error().message;
    covered.insert(conversion.value().architecture);
  }
  for (const Architecture* const* a = kArchitectures; *a; ++a) {
    EXPECT_TRUE(covered.contains(std::string((*a)->gguf_name))) << (*a)->gguf_name;
  }
}

}  // namespace
}  // namespace zinc
