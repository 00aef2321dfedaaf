// EXPECT_TRUE(contains_all(message, {"layer 3", "[4,8]"})): the message contains every part; a failure shows the
// message and the missing part.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <string_view>

namespace zinc {

inline testing::AssertionResult contains_all(std::string_view message, std::initializer_list<std::string_view> parts) {
  for (const std::string_view part : parts) {
    if (message.find(part) == std::string_view::npos) {
      return testing::AssertionFailure() << "'" << message << "' does not contain '" << part << "'";
    }
  }
  return testing::AssertionSuccess();
}

}  // namespace zinc
