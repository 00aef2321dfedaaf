// EXPECT_TRUE(says(message, {"layer 3", "[4,8]"})): the message holds every part; a failure shows the message and the
// part it lacks.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <string_view>

namespace zinc {

inline testing::AssertionResult says(std::string_view message, std::initializer_list<std::string_view> parts) {
  for (const std::string_view part : parts) {
    if (message.find(part) == std::string_view::npos) {
      return testing::AssertionFailure() << "'" << message << "' does not say '" << part << "'";
    }
  }
  return testing::AssertionSuccess();
}

}  // namespace zinc
