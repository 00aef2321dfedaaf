#include "cli/natural_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace zinc {
namespace {

TEST(NaturalOrder, numbers_are_compared_as_numbers) {
  std::vector<std::string> names = {"output", "blk.10.b", "blk.2.b", "blk.2.a", "blk.1", "blk.100", "blk"};
  std::ranges::sort(names, natural_less);
  EXPECT_EQ(names, (std::vector<std::string>{"blk", "blk.1", "blk.2.a", "blk.2.b", "blk.10.b", "blk.100", "output"}));
  EXPECT_FALSE(natural_less("a1", "a1"));
}

}  // namespace
}  // namespace zinc
