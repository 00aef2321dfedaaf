#include "cli/hub_settings.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>
#include <string>

#include "cli/progress_bar.h"
#include "tests/support/test_files.h"

namespace zinc {
namespace {

namespace fs = std::filesystem;

// Sets an environment variable for its lifetime.
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

TEST(CacheFolder, uses_xdg_variable_then_home) {
  const Variable home("HOME", "/home/someone");
  {
    const Variable cache("XDG_CACHE_HOME", "/var/elsewhere");
    EXPECT_EQ(cache_folder().value(), "/var/elsewhere/zinc");
  }
  const Variable relative("XDG_CACHE_HOME", "not/absolute");
  EXPECT_EQ(cache_folder().value(), "/home/someone/.cache/zinc");
}

TEST(CacheFolder, error_without_home_names_the_variables) {
  const Variable home("HOME", nullptr);
  const Variable cache("XDG_CACHE_HOME", nullptr);
  const Result<fs::path> folder = cache_folder();
  ASSERT_FALSE(folder.ok());
  EXPECT_NE(folder.error().message.find("XDG_CACHE_HOME"), std::string::npos);
  EXPECT_FALSE(hub_settings().ok());
}

TEST(HubSettings, use_variables_of_hugging_face_ollama_and_pip) {
  const TestFolder folder;
  put(folder / "hf" / "token", "hf_from_file\n");
  const Variable home("HOME", "/home/someone"), cache("XDG_CACHE_HOME", nullptr), config("XDG_CONFIG_HOME", nullptr);
  const Variable hub("HF_HUB_CACHE", nullptr), path("HF_TOKEN_PATH", nullptr), no_token("HF_TOKEN", nullptr);
  const Variable models("OLLAMA_MODELS", nullptr), index("PIP_INDEX_URL", nullptr), online("HF_HUB_OFFLINE", nullptr);
  {
    const Variable hf_home("HF_HOME", nullptr), endpoint("HF_ENDPOINT", nullptr);
    const HubSettings settings = hub_settings().value();
    EXPECT_EQ(settings.cache, "/home/someone/.cache/zinc");
    EXPECT_EQ(settings.config, "/home/someone/.config/zinc");
    EXPECT_EQ(settings.hf_cache, "/home/someone/.cache/huggingface/hub");
    EXPECT_EQ(settings.hf_endpoint, "https://huggingface.co");
    EXPECT_EQ(settings.hf_token, "");
    EXPECT_EQ(settings.ollama_stores.front(), "/home/someone/.ollama/models");
    EXPECT_FALSE(settings.offline);
  }
  const Variable hf_home("HF_HOME", (folder / "hf").c_str()), endpoint("HF_ENDPOINT", "https://mirror.example/");
  const Variable ollama("OLLAMA_MODELS", "/srv/ollama"), offline("HF_HUB_OFFLINE", "1");
  const Variable pip("PIP_INDEX_URL", "https://index.example/simple/");
  const HubSettings settings = hub_settings().value();
  EXPECT_EQ(settings.hf_cache, folder / "hf" / "hub");
  EXPECT_EQ(settings.hf_token, "hf_from_file");
  EXPECT_EQ(settings.hf_endpoint, "https://mirror.example");
  EXPECT_EQ(settings.ollama_stores, std::vector<fs::path>{"/srv/ollama"});
  EXPECT_EQ(settings.package_index, "https://index.example/simple");
  EXPECT_TRUE(settings.offline);
  const Variable token("HF_TOKEN", " hf_from_variable ");
  EXPECT_EQ(hub_settings().value().hf_token, "hf_from_variable");
}

TEST(PipConf, index_url_is_read_from_global_and_download_sections) {
  EXPECT_EQ(
      read_pip_conf("[install]\nindex-url = https://no\n[global]\n; x\nindex-url = https://yes/simple/\n").index_url,
      "https://yes/simple");
  EXPECT_EQ(read_pip_conf("index-url = https://outside").index_url, "");
  constexpr const char* kOwn = "[download]\nindex-url = https://own\n";
  constexpr const char* kGlobal = "[global]\nindex-url = https://all\n";
  EXPECT_EQ(read_pip_conf(fmt::format("{}{}", kOwn, kGlobal)).index_url, "https://own");
  EXPECT_EQ(read_pip_conf(fmt::format("{}{}", kGlobal, kOwn)).index_url, "https://own");
  EXPECT_EQ(read_pip_conf("[global]\nindex-url\n=\n").index_url, "");
  EXPECT_EQ(read_pip_conf("").index_url, "");
}

TEST(PipConf, detects_settings_that_need_pip) {
  EXPECT_FALSE(read_pip_conf("[global]\nindex-url = https://yes\ntimeout = 60\n").needs_pip);
  for (const char* line : {"extra-index-url = https://x", "find_links = /srv/wheels", "no-index = true"}) {
    EXPECT_TRUE(read_pip_conf(fmt::format("[global]\n{}\n", line)).needs_pip) << line;
    EXPECT_FALSE(read_pip_conf(fmt::format("[install]\n{}\n", line)).needs_pip) << line;
  }
}

TEST(HubSettings, pip_is_needed_if_configured_with_more_than_an_index) {
  const Variable home("HOME", "/home/someone"), config("XDG_CONFIG_HOME", nullptr);
  const Variable links("PIP_FIND_LINKS", nullptr), extra("PIP_EXTRA_INDEX_URL", nullptr), no("PIP_NO_INDEX", nullptr);
  EXPECT_FALSE(hub_settings().value().needs_pip);
  const Variable wheels("PIP_FIND_LINKS", "/srv/wheels");
  EXPECT_TRUE(hub_settings().value().needs_pip);
}

TEST(Progress, shows_percentage_rate_and_time_left) {
  const DownloadProgress half{DownloadPhase::downloading, 5'000'000'000, 2'500'000'000};
  EXPECT_EQ(progress_bar_text(half, 25e6, 120),
            "[==============>             ]  50 %  2.50 GB of 5.00 GB  25 MB/s  1 min 40 s left");
  EXPECT_EQ(progress_bar_text(half, 0, 40), " 50 %  2.50 GB of 5.00 GB") << "a narrow terminal gets no bar";
  EXPECT_EQ(progress_bar_text(half, 25e6, 10).size(), 10u);
  EXPECT_EQ(progress_line({DownloadPhase::verifying, 100'000'000, 99'999'999}, 0), "verifying: 99 %  100 MB of 100 MB");
  EXPECT_EQ(progress_bar_text({DownloadPhase::unpacking, 100'000'000, 0}, 0, 120),
            "unpacking [>" + std::string(27, ' ') + "]   0 %  0 bytes of 100 MB");
  EXPECT_EQ(progress_line({DownloadPhase::unpacking, 100'000'000, 50'000'000}, 0), "unpacking: 50 %  50 MB of 100 MB");
  EXPECT_EQ(progress_bar_text({DownloadPhase::downloading, 0, 0}, 0, 0), "");
  EXPECT_NE(progress_bar_text({DownloadPhase::downloading, 1 << 30, 0}, 1, 200).find("days left"), std::string::npos);
}

}  // namespace
}  // namespace zinc
