#include "graph/weight_slices.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>

#include "tests/support/contains_all.h"

namespace zinc {
namespace {

ValueInfo weight_of(const Format& format, const Shape& shape, std::span<const std::byte> bytes) {
  ValueInfo info;
  info.shape = shape;
  info.weight = {&format, shape, bytes};
  info.name = "w";
  return info;
}

std::vector<float> floats_of(const TensorView& view) {
  std::vector<float> floats(static_cast<size_t>(view.shape.elems()));
  view.format->dequantize(view.bytes, floats);
  return floats;
}

// Bit patterns: some are NaN.
void expect_equal(float a, float b, const std::string& what) {
  EXPECT_TRUE(a == b || (std::isnan(a) && std::isnan(b))) << what << ": " << a << " and " << b;
}

// Rows 1-2 and 4, blocks 1 and 3 of each of two experts: the elements of the whole tensor, in every format.
TEST(WeightSlices, rows_and_columns_of_every_format_are_those_of_the_tensor) {
  constexpr int64_t kExperts = 2, kRows = 5, kBlocks = 4;
  std::mt19937 random(1);
  for (const Format* const* f = kFormats; *f; ++f) {
    const Format& format = **f;
    if (format.gguf_id == kNoGgufType) continue;
    const int64_t block = format.block_elems, n_columns = kBlocks * block;
    std::vector<std::byte> bytes(row_bytes(format, static_cast<size_t>(kExperts * kRows * n_columns)));
    for (std::byte& b : bytes) b = static_cast<std::byte>(random() % 64);  // valid codebook indices and finite scales
    const ValueInfo whole = weight_of(format, {kExperts, kRows, n_columns}, bytes);
    IndexRanges rows(1, 3), columns(block, 2 * block);
    rows.add(IndexRange{4, 5});
    columns.add(IndexRange{3 * block, 4 * block});
    WeightSlices slices;
    const Result<TensorView> part = slices.slice(whole, rows, columns);
    ASSERT_TRUE(part.ok()) << part.error().message;
    ASSERT_EQ(part.value().shape, (Shape{kExperts, 3, 2 * block}));
    slices.fill();
    const std::vector<float> all = floats_of(whole.weight), some = floats_of(part.value());
    size_t at = 0;
    for (int64_t expert = 0; expert < kExperts; ++expert) {
      for (const int64_t row : {1, 2, 4}) {
        for (const int64_t b : {1, 3}) {
          for (int64_t i = 0; i < block; ++i) {
            const int64_t from = (expert * kRows + row) * n_columns + b * block + i;
            expect_equal(some[at++], all[static_cast<size_t>(from)], std::string(format.name));
          }
        }
      }
    }
  }
}

TEST(WeightSlices, one_range_of_rows_is_a_view_of_the_file) {
  const std::vector<std::byte> bytes(6 * 4 * sizeof(float));
  WeightSlices slices;
  const ValueInfo matrix = weight_of(k_f32, {6, 4}, bytes), vector = weight_of(k_f32, {24}, bytes);
  const TensorView rows = slices.slice(matrix, {2, 5}, {0, 4}).value();
  EXPECT_EQ(rows.bytes.data(), bytes.data() + 2 * 4 * sizeof(float));
  EXPECT_EQ(rows.shape, (Shape{3, 4}));
  const TensorView some = slices.slice(vector, {0, 1}, {8, 12}).value();
  EXPECT_EQ(some.bytes.data(), bytes.data() + 8 * sizeof(float));
  EXPECT_EQ(some.shape, (Shape{4}));
}

TEST(WeightSlices, a_block_is_not_divided) {
  const Format& q8_0 = *find_format("q8_0");
  const std::vector<std::byte> bytes(row_bytes(q8_0, 64));
  WeightSlices slices;
  const Result<TensorView> part = slices.slice(weight_of(q8_0, {1, 64}, bytes), {0, 1}, {16, 48});
  ASSERT_FALSE(part.ok());
  EXPECT_TRUE(contains_all(part.error().message, {"'w'", "column 16", "q8_0", "blocks of 32"})) << part.error().message;
}

TEST(IndexRanges, touching_ranges_are_one_and_positions_count_the_indices_before) {
  IndexRanges some(8, 12);
  some.add(IndexRange{0, 4});
  EXPECT_EQ(some.ranges().size(), 2u);
  EXPECT_EQ(some.positions_of(IndexRanges(9, 11)), IndexRanges(5, 7));
  EXPECT_EQ(some.divided(4).size(), 2);
  EXPECT_EQ(some.divided(8), IndexRanges(0, 2));
  some.add(IndexRange{4, 8});
  EXPECT_EQ(some, IndexRanges(0, 12));
  EXPECT_TRUE(some.is_all(12));
  EXPECT_EQ(some.within({3, 5}).shifted(-3).scaled(2), IndexRanges(0, 4));
}

}  // namespace
}  // namespace zinc
