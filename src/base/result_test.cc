#include "base/result.h"

#include <gtest/gtest.h>

#include <memory>

namespace zinc {
namespace {

Result<int> half(int n) {
  if (n % 2 != 0) return fail(ErrorCode::invalid_input, "{} is odd", n);
  return n / 2;
}

Result<std::string> quarter(int n) {
  ZINC_TRY(once, half(n));
  ZINC_TRY(twice, half(once));
  return std::to_string(twice);
}

TEST(Result, holds_a_value_or_an_error) {
  EXPECT_TRUE(half(4).ok());
  EXPECT_EQ(half(4).value(), 2);
  const Result<int> odd = half(3);
  ASSERT_FALSE(odd.ok());
  EXPECT_EQ(odd.error().code, ErrorCode::invalid_input);
  EXPECT_EQ(odd.error().message, "3 is odd");
}

TEST(Result, try_propagates_the_first_error_into_another_type) {
  EXPECT_EQ(quarter(8).value(), "2");
  EXPECT_EQ(quarter(7).error().message, "7 is odd");
  EXPECT_EQ(quarter(6).error().message, "3 is odd");
}

TEST(Result, values_may_be_move_only) {
  Result<std::unique_ptr<int>> made = std::make_unique<int>(5);
  const std::unique_ptr<int> taken = std::move(made.value());
  EXPECT_EQ(*taken, 5);
}

TEST(Result, status_is_a_result_without_a_value) {
  const auto check = [](bool fails) -> Status {
    if (fails) return fail(ErrorCode::io, "no");
    return ok_status();
  };
  EXPECT_TRUE(check(false).ok());
  EXPECT_EQ(check(true).error().code, ErrorCode::io);
}

TEST(ResultDeathTest, wrong_access_aborts_with_file_and_line) {
  EXPECT_DEATH(half(3).value(), "result.h:.*internal error: ok\\(\\) does not hold");
  EXPECT_DEATH(static_cast<void>(half(4).error()), "internal error: !ok\\(\\) does not hold");
}

}  // namespace
}  // namespace zinc
