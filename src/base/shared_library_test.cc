#include "base/shared_library.h"

#include <gtest/gtest.h>

namespace zinc {
namespace {

TEST(SharedLibrary, finds_functions_of_a_library_of_the_system) {
  const Result<SharedLibrary> library = SharedLibrary::open("libm.so.6");
  ASSERT_TRUE(library.ok()) << library.error().message;
  void* const cosine = library.value().find("cos");
  ASSERT_NE(cosine, nullptr);
  EXPECT_EQ(reinterpret_cast<double (*)(double)>(cosine)(0.0), 1.0);
  EXPECT_FALSE(library.value().folder_of(cosine).empty());
  EXPECT_EQ(library.value().find("no_such_function_anywhere"), nullptr);
}

TEST(SharedLibrary, an_absent_library_is_an_error_that_names_it) {
  const Result<SharedLibrary> library = SharedLibrary::open("libzinc-no-such-library.so.9");
  ASSERT_FALSE(library.ok());
  EXPECT_NE(library.error().message.find("libzinc-no-such-library.so.9"), std::string::npos);
}

}  // namespace
}  // namespace zinc
