// The quantizers of the IQ formats on rows that are hard or that they can represent exactly.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "quantize/quantizer.h"

namespace zinc {
namespace {

constexpr size_t kColumns = 512;

class IqFormat : public testing::TestWithParam<const char*> {
 protected:
  const Format& format_ = *find_format(std::string_view(GetParam()));

  std::vector<std::byte> quantize(const std::vector<float>& row, const std::vector<float>& importance) const {
    std::vector<std::byte> blocks(row_bytes(format_, row.size()));
    find_quantizer(format_)->quantize(row, importance, blocks);
    return blocks;
  }
  std::vector<float> dequantize(const std::vector<std::byte>& blocks) const {
    std::vector<float> values(blocks.size() / format_.block_bytes * format_.block_elems);
    format_.dequantize(blocks, values);
    return values;
  }
};

std::vector<float> gaussian_row(uint32_t seed, float sigma) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, sigma);
  std::vector<float> row(kColumns);
  for (float& x : row) x = normal(random);
  return row;
}

std::vector<float> filled(float value) { return std::vector<float>(kColumns, value); }

std::vector<std::vector<float>> hard_rows() {
  std::vector<std::vector<float>> rows;
  for (const float value : {0.0F, -0.0F, 1.0F, -1.0F, 1e-30F, 1e-40F, 1e30F, -1e30F, 3e38F, 1e-6F, 60000.0F}) {
    rows.push_back(filled(value));
  }
  std::vector<float> outlier = gaussian_row(1, 0.01F);
  outlier[300] = 50;
  rows.push_back(outlier);
  outlier[17] = -1e30F;
  rows.push_back(outlier);
  std::vector<float> negative = gaussian_row(2, 0.1F);
  for (float& x : negative) x = -std::abs(x);
  rows.push_back(negative);
  std::vector<float> half_zero = gaussian_row(3, 0.1F);
  std::fill(half_zero.begin() + 8, half_zero.begin() + 200, 0.0F);
  rows.push_back(half_zero);
  std::vector<float> all_sizes = gaussian_row(4, 1);
  for (size_t i = 0; i < kColumns; ++i) all_sizes[i] *= std::pow(10.0F, static_cast<float>(i % 70) - 35);
  rows.push_back(all_sizes);
  return rows;
}

std::vector<std::vector<float>> hard_importances() {
  std::vector<float> some_zero = filled(1);
  for (size_t i = 0; i < kColumns; i += 3) some_zero[i] = 0;
  std::fill(some_zero.begin() + 64, some_zero.begin() + 128, 0.0F);
  std::vector<float> one = filled(0);
  one[100] = 1e20F;
  return {{}, filled(0), filled(1e-38F), filled(1e30F), some_zero, one};
}

TEST_P(IqFormat, hard_rows_stay_finite_and_near) {
  size_t row_id = 0;
  for (const std::vector<float>& row : hard_rows()) {
    const float largest = std::abs(*std::ranges::max_element(row, {}, [](float x) { return std::abs(x); }));
    size_t importance_id = 0;
    for (const std::vector<float>& importance : hard_importances()) {
      const std::vector<float> values = dequantize(quantize(row, importance));
      for (size_t i = 0; i < kColumns; ++i) {
        ASSERT_TRUE(std::isfinite(values[i])) << "row " << row_id << ", importance " << importance_id << ", " << i;
        ASSERT_LE(std::abs(values[i]), 3 * largest)
            << "row " << row_id << ", importance " << importance_id << ", " << i;
      }
      ++importance_id;
    }
    ++row_id;
  }
}

TEST_P(IqFormat, columns_without_importance_are_quantized_too) {
  const std::vector<float> row = gaussian_row(5, 0.05F);
  std::vector<float> importance = filled(1);
  std::fill(importance.begin() + 256, importance.end(), 0.0F);
  const std::vector<float> values = dequantize(quantize(row, importance));
  double error = 0;
  double sum = 0;
  for (size_t i = 256; i < kColumns; ++i) {
    error += std::pow(double{values[i]} - row[i], 2);
    sum += std::pow(row[i], 2);
  }
  EXPECT_LT(error, 0.35 * sum);
}

TEST_P(IqFormat, important_columns_lose_less) {
  const std::vector<float> row = gaussian_row(6, 0.05F);
  std::vector<float> importance = filled(0.01F);
  for (size_t i = 0; i < kColumns; i += 4) importance[i] = 10;
  const std::vector<float> with = dequantize(quantize(row, importance));
  const std::vector<float> without = dequantize(quantize(row, {}));
  double error_with = 0;
  double error_without = 0;
  for (size_t i = 0; i < kColumns; i += 4) {
    error_with += std::pow(with[i] - row[i], 2);
    error_without += std::pow(without[i] - row[i], 2);
  }
  EXPECT_LT(error_with, 0.8 * error_without);
}

TEST_P(IqFormat, a_row_that_the_format_can_represent_is_recovered) {
  const std::vector<float> row = dequantize(quantize(gaussian_row(7, 0.05F), filled(1)));
  EXPECT_EQ(dequantize(quantize(row, filled(1))), row);
}

TEST_P(IqFormat, threads_make_the_same_blocks) {
  const std::vector<float> row = gaussian_row(8, 0.05F);
  const std::vector<float> importance = filled(1);
  std::vector<std::vector<std::byte>> results(4);
  std::vector<std::thread> threads;
  for (auto& result : results) threads.emplace_back([&] { result = quantize(row, importance); });
  for (std::thread& thread : threads) thread.join();
  for (const auto& result : results) EXPECT_EQ(result, results[0]);
}

INSTANTIATE_TEST_SUITE_P(Formats, IqFormat,
                         testing::Values("iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s", "iq4_nl",
                                         "iq4_xs"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace zinc
