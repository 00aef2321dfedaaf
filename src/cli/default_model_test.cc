#include "cli/default_model.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>
#include <string>

namespace zinc {
namespace {

// Sets a variable for one test, and puts it back.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    set(value);
  }
  ~Variable() { set(old_ ? old_->c_str() : nullptr); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  void set(const char* value) const { value ? ::setenv(name_, value, 1) : ::unsetenv(name_); }
  const char* name_;
  std::optional<std::string> old_;
};

TEST(CacheFolder, follows_the_xdg_variable_then_home) {
  const Variable home("HOME", "/home/someone");
  {
    const Variable cache("XDG_CACHE_HOME", "/var/elsewhere");
    EXPECT_EQ(cache_folder().value(), "/var/elsewhere/zinc");
  }
  const Variable relative("XDG_CACHE_HOME", "not/absolute");
  EXPECT_EQ(cache_folder().value(), "/home/someone/.cache/zinc");
}

TEST(CacheFolder, without_home_the_error_says_what_to_set) {
  const Variable home("HOME", nullptr);
  const Variable cache("XDG_CACHE_HOME", nullptr);
  const Result<std::filesystem::path> folder = cache_folder();
  ASSERT_FALSE(folder.ok());
  EXPECT_NE(folder.error().message.find("XDG_CACHE_HOME"), std::string::npos);
  EXPECT_FALSE(fetch_default_model([](std::string_view) {}).ok());
}

TEST(DefaultModel, is_described_completely) {
  EXPECT_EQ(kDefaultModel.sha256.size(), 64u);
  EXPECT_EQ(kDefaultModel.sha256.find_first_not_of("0123456789abcdef"), std::string_view::npos);
  EXPECT_TRUE(kDefaultModel.member.ends_with(".gguf"));
}

}  // namespace
}  // namespace zinc
