// Rows at the edges of what floats and blocks can hold, and what holds for any row.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "quantize/quantizer.h"

namespace zinc {
namespace {

constexpr size_t kColumns = 512;
const char* const kBlockFormats[] = {"q1_0", "q2_0", "q4_0", "q4_1", "q5_0",  "q5_1",  "q8_0",  "q2_k",
                                     "q3_k", "q4_k", "q5_k", "q6_k", "mxfp4", "nvfp4", "tq1_0", "tq2_0"};

std::vector<float> quantize(const char* name, const std::vector<float>& row,
                            const std::vector<float>& importance = {}) {
  const Quantizer* quantizer = find_quantizer(*find_format(name));
  EXPECT_NE(quantizer, nullptr) << name;
  std::vector<std::byte> blocks(row_bytes(quantizer->format, row.size()));
  quantizer->quantize(row, importance, blocks);
  std::vector<float> values(row.size());
  quantizer->format.dequantize(blocks, values);
  return values;
}

double squared_error(const std::vector<float>& row, const std::vector<float>& values) {
  double error = 0;
  for (size_t i = 0; i < row.size(); ++i) error += (double{row[i]} - values[i]) * (double{row[i]} - values[i]);
  return error;
}

std::vector<float> gaussian_row(uint32_t seed, float sigma) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0, sigma);
  std::vector<float> row(kColumns);
  for (float& x : row) x = normal(generator);
  return row;
}

struct EdgeRow {
  const char* name;
  std::vector<float> row;
};

std::vector<EdgeRow> edge_rows() {
  std::vector<float> outlier = gaussian_row(1, 0.001F), negative = gaussian_row(2, 0.1F), huge = gaussian_row(3, 1e30F),
                     tiny = gaussian_row(4, 1e-30F), denormal = gaussian_row(5, 1e-40F), large = gaussian_row(6, 1e5F),
                     small = gaussian_row(7, 1e-6F), mixed = gaussian_row(8, 0.02F);
  outlier[300] = -50;
  for (float& x : negative) x = -std::abs(x);
  mixed[17] = 1e30F;
  mixed[400] = 1e-38F;
  return {{"zeros", std::vector<float>(kColumns, 0.0F)},
          {"constant", std::vector<float>(kColumns, 0.37F)},
          {"negative constant", std::vector<float>(kColumns, -0.37F)},
          {"one outlier", outlier},
          {"negative", negative},
          {"huge", huge},
          {"tiny", tiny},
          {"denormal", denormal},
          {"large", large},
          {"small", small},
          {"huge and small", mixed}};
}

std::vector<EdgeRow> edge_importances() {
  std::vector<float> one(kColumns, 0.0F), part(kColumns, 1.0F);
  one[77] = 1;
  for (size_t i = 0; i < kColumns / 2; ++i) part[i] = 0;
  return {{"no importance", {}},
          {"all zero", std::vector<float>(kColumns, 0.0F)},
          {"one column", one},
          {"half of the columns", part},
          {"huge", std::vector<float>(kColumns, 1e20F)},
          {"tiny", std::vector<float>(kColumns, 1e-20F)}};
}

TEST(QuantizerRows, edge_rows_become_finite_values_between_zero_and_not_far_beyond_the_largest) {
  for (const char* name : kBlockFormats) {
    for (const auto& [importance_name, importance] : edge_importances()) {
      for (const auto& [row_name, row] : edge_rows()) {
        SCOPED_TRACE(std::string(name) + ", row: " + row_name + ", importance: " + importance_name);
        float largest = 0;
        for (const float x : row) largest = std::max(largest, std::abs(x));
        for (const float value : quantize(name, row, importance)) {
          ASSERT_TRUE(std::isfinite(value));
          // Steps of the smallest scale that f16 holds may be larger than a tiny row.
          ASSERT_LE(std::abs(value), 2.5F * largest + 0x1p-9F);
        }
      }
    }
  }
}

TEST(QuantizerRows, edge_rows_lose_less_than_zeros_would) {
  for (const char* name : kBlockFormats) {
    for (const auto& [row_name, row] : edge_rows()) {
      double sum = 0;
      for (const float x : row) sum += double{x} * x;
      EXPECT_LE(squared_error(row, quantize(name, row)), sum * 1.0001) << name << ", row: " << row_name;
    }
  }
}

TEST(QuantizerRows, columns_without_importance_are_quantized_all_the_same) {
  const std::vector<float> row = gaussian_row(9, 0.02F);
  for (const char* name : kBlockFormats) {
    const double plain = squared_error(row, quantize(name, row));
    EXPECT_LE(squared_error(row, quantize(name, row, std::vector<float>(kColumns, 0.0F))), 1.1 * plain) << name;
  }
}

TEST(QuantizerRows, importance_lowers_the_error_of_its_columns) {
  const std::vector<float> row = gaussian_row(10, 0.02F);
  std::vector<float> importance(kColumns, 0.01F);
  for (size_t i = 0; i < kColumns; i += 8) importance[i] = 10;
  const auto error = [&](const std::vector<float>& values) {
    double sum = 0;
    for (size_t i = 0; i < kColumns; i += 8) sum += (double{row[i]} - values[i]) * (double{row[i]} - values[i]);
    return sum;
  };
  for (const char* name :
       {"q2_0", "q4_0", "q4_1", "q5_0", "q5_1", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "nvfp4", "tq1_0", "tq2_0"}) {
    EXPECT_LT(error(quantize(name, row, importance)), error(quantize(name, row))) << name;
  }
}

TEST(QuantizerRows, the_error_falls_with_the_bits) {
  const std::vector<std::vector<const char*>> ladders = {{"q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "q8_0"},
                                                         {"q1_0", "q2_0", "nvfp4", "q5_0", "q8_0"},
                                                         {"tq1_0", "q2_k", "mxfp4", "q4_1", "q5_1", "q8_0"}};
  std::vector<float> importance = gaussian_row(12, 1);
  for (float& x : importance) x *= x;
  for (uint32_t seed = 100; seed < 120; ++seed) {
    const std::vector<float> row = gaussian_row(seed, 0.02F);
    for (const std::vector<const char*>& ladder : ladders) {
      for (size_t i = 1; i < ladder.size(); ++i) {
        EXPECT_LT(squared_error(row, quantize(ladder[i], row)), squared_error(row, quantize(ladder[i - 1], row)))
            << ladder[i - 1] << ", " << ladder[i];
        EXPECT_LT(squared_error(row, quantize(ladder[i], row, importance)),
                  squared_error(row, quantize(ladder[i - 1], row, importance)))
            << ladder[i - 1] << ", " << ladder[i] << ", with importance";
      }
    }
  }
}

TEST(QuantizerRows, values_that_a_format_holds_exactly_are_kept) {
  std::mt19937 generator(11);
  std::vector<float> ternary(kColumns), fp4(kColumns);
  for (float& x : ternary) x = static_cast<float>(static_cast<int>(generator() % 3) - 1) * 0.25F;
  constexpr float kMagnitudes[] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
  for (float& x : fp4) x = kMagnitudes[generator() % 8] * (generator() % 2 == 0 ? 0.125F : -0.125F);
  for (size_t i = 0; i < kColumns; i += 16) fp4[i] = 0.75F;  // the largest magnitude of each block
  for (const char* name : {"tq1_0", "tq2_0", "q2_0"}) EXPECT_EQ(quantize(name, ternary), ternary) << name;
  for (const char* name : {"mxfp4", "nvfp4"}) EXPECT_EQ(quantize(name, fp4), fp4) << name;
}

}  // namespace
}  // namespace zinc
