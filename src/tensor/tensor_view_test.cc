#include "tensor/tensor_view.h"

#include <gtest/gtest.h>

#include <array>

namespace zinc {
namespace {

TEST(Shape, counts_elements_and_row_length) {
  const Shape matrix{4096, 1024};
  EXPECT_EQ(matrix.n_dims(), 2);
  EXPECT_EQ(matrix[0], 4096);
  EXPECT_EQ(matrix.inner(), 1024);
  EXPECT_EQ(matrix.elems(), 4096 * 1024);
  EXPECT_EQ(matrix.to_string(), "[4096,1024]");
  EXPECT_EQ(matrix, Shape(std::array<int64_t, 2>{4096, 1024}));
  EXPECT_NE(matrix, (Shape{1024, 4096}));
  EXPECT_NE((Shape{7}), (Shape{7, 0}));
}

TEST(Shape, without_dimensions_is_one_element) {
  EXPECT_EQ(Shape().elems(), 1);
  EXPECT_EQ(Shape().inner(), 1);
  EXPECT_EQ(Shape().to_string(), "[]");
}

TEST(Format, row_bytes_counts_whole_blocks) {
  EXPECT_EQ(row_bytes(*find_format("q4_k"), 512), 288u);
  EXPECT_EQ(row_bytes(*find_format("f16"), 3), 6u);
}

}  // namespace
}  // namespace zinc
