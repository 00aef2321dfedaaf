// Files for tests: a unique temporary folder, and one-call reading and writing.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/sha256.h"

namespace zinc {

inline std::string contents(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

inline std::filesystem::path put(const std::filesystem::path& path, std::string_view text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

inline std::string sha256_of(std::string_view bytes) { return sha256_hex(std::as_bytes(std::span(bytes))); }

// Removed by the process that created it, not by forked children. Named after the running test, and short enough for a
// socket path in it.
class TestFolder {
 public:
  explicit TestFolder(const std::filesystem::path& parent = testing::TempDir()) {
    constexpr size_t kMaxName = 48;
    std::string name = "zinc";
    if (const testing::TestInfo* const test = testing::UnitTest::GetInstance()->current_test_info()) {
      name += std::string("_") + test->test_suite_name() + "_" + test->name();
    }
    std::ranges::replace(name, '/', '_');
    std::string path = parent / (name.substr(0, kMaxName) + "_XXXXXX");
    ZINC_CHECK(::mkdtemp(path.data()) != nullptr);
    path_ = path;
  }
  ~TestFolder() {
    if (::getpid() != owner_) return;
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::filesystem::path& below) const { return path_ / below; }

 private:
  const pid_t owner_ = ::getpid();
  std::filesystem::path path_;
};

}  // namespace zinc
