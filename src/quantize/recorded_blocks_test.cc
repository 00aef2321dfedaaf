// Compares with blocks recorded from llama.cpp's quantizer: tests/data/quantize/README.md.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "quantize/quantizer.h"

namespace zinc {
namespace {

constexpr size_t kColumns = 512;

std::vector<char> read_bytes(const std::string& name) {
  std::ifstream file(ZINC_SOURCE_DIR "/tests/data/quantize/" + name, std::ios::binary);
  EXPECT_TRUE(file.good()) << name;
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::vector<float> read_floats(const std::string& name) {
  const std::vector<char> bytes = read_bytes(name);
  std::vector<float> floats(bytes.size() / sizeof(float));
  std::memcpy(floats.data(), bytes.data(), floats.size() * sizeof(float));
  return floats;
}

class RecordedBlocks : public testing::TestWithParam<std::tuple<const char*, bool>> {
 protected:
  RecordedBlocks()
      : name_(std::get<0>(GetParam())),
        rows_(read_floats("rows.f32")),
        importance_(std::get<1>(GetParam()) ? read_floats("importance.f32") : std::vector<float>()),
        recorded_(read_bytes(name_ + (importance_.empty() ? ".bin" : "-importance.bin"))) {}

  std::vector<std::byte> quantize() const {
    const Quantizer* quantizer = find_quantizer(*find_format(name_));
    EXPECT_NE(quantizer, nullptr);
    std::vector<std::byte> blocks(row_bytes(quantizer->format, rows_.size()));
    const size_t stride = row_bytes(quantizer->format, kColumns);
    for (size_t i = 0; i * kColumns < rows_.size(); ++i) {
      const std::span row = std::span(rows_).subspan(i * kColumns, kColumns);
      quantizer->quantize(row, importance_, std::span(blocks).subspan(i * stride, stride));
    }
    return blocks;
  }

  // Weighted by importance * sqrt(mean of the row's x^2 + x^2), Q1_0 by importance alone.
  double squared_error(std::span<const std::byte> blocks) const {
    std::vector<float> values(rows_.size());
    find_format(name_)->dequantize(blocks, values);
    double error = 0;
    for (size_t begin = 0; begin < rows_.size(); begin += kColumns) {
      double sigma2 = 0;
      for (size_t i = begin; i < begin + kColumns; ++i) sigma2 += double{rows_[i]} * rows_[i] / kColumns;
      for (size_t i = begin; i < begin + kColumns; ++i) {
        const double x = rows_[i], difference = values[i] - x;
        const double weight = importance_.empty() ? 1 : importance_[i - begin];
        error += weight * (name_ == "q1_0" ? 1 : std::sqrt(sigma2 + x * x)) * difference * difference;
      }
    }
    return error;
  }

  const std::string name_;
  const std::vector<float> rows_, importance_;
  const std::vector<char> recorded_;
};

std::string case_name(const testing::TestParamInfo<std::tuple<const char*, bool>>& info) {
  return std::string(std::get<0>(info.param)) + (std::get<1>(info.param) ? "_with_importance" : "");
}

using EqualBlocks = RecordedBlocks;
TEST_P(EqualBlocks, are_made_bit_for_bit) {
  const std::vector<std::byte> blocks = quantize();
  ASSERT_EQ(blocks.size(), recorded_.size());
  const size_t block_bytes = find_format(name_)->block_bytes;
  for (size_t i = 0; i < blocks.size(); ++i) {
    ASSERT_EQ(static_cast<int>(blocks[i]), static_cast<uint8_t>(recorded_[i]))
        << "block " << i / block_bytes << ", byte " << i % block_bytes;
  }
}
INSTANTIATE_TEST_SUITE_P(Formats, EqualBlocks,
                         testing::Combine(testing::Values("q4_0", "q4_1", "q5_0", "q5_1", "q8_0"), testing::Bool()),
                         case_name);

using CloseBlocks = RecordedBlocks;
TEST_P(CloseBlocks, lose_no_more_than_llama_cpp) {
  const double ours = squared_error(quantize()), theirs = squared_error(std::as_bytes(std::span(recorded_)));
  EXPECT_LE(ours, 1.02 * theirs);
  RecordProperty("ratio", std::to_string(ours / theirs));
}
INSTANTIATE_TEST_SUITE_P(Formats, CloseBlocks,
                         testing::Combine(testing::Values("q1_0", "q2_0", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k",
                                                          "mxfp4", "nvfp4", "tq1_0", "tq2_0"),
                                          testing::Bool()),
                         case_name);
INSTANTIATE_TEST_SUITE_P(IqFormats, CloseBlocks,
                         testing::Combine(testing::Values("iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs",
                                                          "iq3_s", "iq4_nl", "iq4_xs"),
                                          testing::Values(true)),
                         case_name);

}  // namespace
}  // namespace zinc
