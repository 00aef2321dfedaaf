#include "backend/gpu/params/limits.h"

#include <gtest/gtest.h>

#include "graph/op.h"

namespace zinc::kernel {
namespace {

// Lowering passes these values to kernels as they are.
TEST(KernelLimits, enums_have_the_values_of_the_graphs) {
  EXPECT_EQ(static_cast<int>(Act::silu), kSilu);
  EXPECT_EQ(static_cast<int>(Act::gelu), kGelu);
  EXPECT_EQ(static_cast<int>(Act::sigmoid), kSigmoid);
  EXPECT_EQ(static_cast<int>(Act::swiglu_oai), kSwigluOai);
  EXPECT_EQ(static_cast<int>(RouterNormalization::softmax), kSoftmaxOverAll);
  EXPECT_EQ(static_cast<int>(RouterNormalization::softmax_normalized), kSoftmaxOverAllNormalized);
  EXPECT_EQ(static_cast<int>(RouterNormalization::softmax_of_selected), kSoftmaxOfSelected);
}

}  // namespace
}  // namespace zinc::kernel
