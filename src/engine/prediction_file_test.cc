#include "engine/prediction_file.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "engine/perplexity.h"
#include "tests/support/test_files.h"

namespace zinc {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

std::vector<TokenId> numbered(size_t n) {
  std::vector<TokenId> tokens(n);
  std::iota(tokens.begin(), tokens.end(), 1);
  return tokens;
}

TEST(PredictionFile, returns_what_was_written_within_a_thousandth_of_a_nat) {
  const std::vector<float> logits = {3, -2, 2.999f, -30, kNever};
  const double log_sum = log_sum_exp(logits);
  const TestFolder folder;
  const std::filesystem::path path = folder / "predictions";
  Result<PredictionWriter> created = PredictionWriter::create(path, 5, 3, numbered(6));
  ASSERT_TRUE(created.ok()) << created.error().message;
  PredictionWriter& writer = created.value();
  ASSERT_TRUE(writer.add(logits, log_sum, 1).ok());
  ASSERT_TRUE(writer.add(std::vector<float>(5, 1.0f), 1 + std::log(5.0), 4).ok());
  ASSERT_TRUE(writer.commit().ok());

  const Result<PredictionFile> opened = PredictionFile::open(path);
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  const PredictionFile& file = opened.value();
  EXPECT_EQ(file.tokens(), numbered(6));
  EXPECT_EQ(file.n_windows(), 2);
  Prediction row;
  file.read(0, row);
  EXPECT_EQ(row.top, 0);
  EXPECT_NEAR(row.target_log_prob, -2 - log_sum, 1e-6);
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(row.log_probs[i], logits[i] - log_sum, 1e-3) << i;
  EXPECT_NEAR(row.log_probs[4], row.log_probs[0] - 60, 1e-2);
  double total = 0;
  for (const double x : row.log_probs) total += std::exp(x);
  EXPECT_NEAR(total, 1, 1e-12);
  file.read(1, row);
  for (const double x : row.log_probs) EXPECT_NEAR(x, -std::log(5.0), 1e-6);
}

TEST(PredictionFile, impossible_sizes_are_rejected) {
  const TestFolder folder;
  for (const int32_t wrong : {0, -1, 1 << 30}) {
    const int32_t numbers[] = {wrong, 8, 1, 0};
    const std::string head = "zinclog1" + std::string(reinterpret_cast<const char*>(numbers), sizeof numbers);
    EXPECT_FALSE(PredictionFile::open(put(folder / "predictions", head)).ok()) << wrong;
  }
}

TEST(Perplexity, quantiles_are_values_that_occurred) {
  const std::vector<double> values = {4, 1, 3, 2};
  EXPECT_EQ(quantile(values, 0.5), 2);
  EXPECT_EQ(quantile(values, 0.99), 4);
  EXPECT_EQ(quantile(values, 0), 1);
  EXPECT_NEAR(error_of_mean(values), std::sqrt(5.0 / 3 / 4), 1e-12);
}

TEST(Perplexity, every_window_begins_with_bos_if_requested) {
  const WindowedText text = cut_into_windows(numbered(11), 3, 0, 99).value();
  EXPECT_EQ(text.tokens, (std::vector<TokenId>{99, 2, 3, 99, 5, 6, 99, 8, 9}));
  EXPECT_EQ(cut_into_windows(numbered(11), 3, 2, std::nullopt).value().tokens, numbered(6));
  EXPECT_FALSE(cut_into_windows(numbered(2), 3, 0, std::nullopt).ok());
}

}  // namespace
}  // namespace zinc
