#include "cli/check/check_report.h"
#include "hub/inventory.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "tests/support/test_files.h"

namespace zinc {
namespace {

// A fake /sys and /proc.
class CheckGpus : public testing::Test {
 protected:
  void put(const std::string& path, const std::string& line) const { zinc::put(root_ / path, line + "\n"); }
  void put_card(const std::string& card, const char* vendor) const {
    put("sys/class/drm/" + card + "/device/vendor", vendor);
    put("sys/class/drm/" + card + "/device/device", "0x1234");
  }
  // The line of that name; a fail line if there is none.
  CheckLine line(const std::string& name) {
    CheckReport report;
    check_gpus(report, root_.path());
    for (const CheckLine& each : report.lines()) {
      if (each.name == name) return each;
    }
    return {CheckStatus::fail, "", "", "no such line"};
  }
  const TestFolder root_;
};

TEST_F(CheckGpus, gpus_are_listed_with_vendor_and_connectors_are_ignored) {
  put_card("card0", "0x10de");
  put_card("card1", "0x8086");
  put_card("card2", "0xabcd");
  put("sys/class/drm/card0-DP-1/device/vendor", "0x1002");
  put("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.14");
  EXPECT_EQ(line("card0").message, "NVIDIA 0x1234");
  EXPECT_EQ(line("card1").message, "Intel 0x1234");
  EXPECT_EQ(line("card2").message, "unknown vendor 0x1234");
  EXPECT_NE(line("nvidia").message.find("550.54.14"), std::string::npos);
  CheckReport report;
  check_gpus(report, root_.path());
  EXPECT_EQ(report.gpus, (std::set{GpuVendor::nvidia, GpuVendor::intel, GpuVendor::other}));
}

TEST_F(CheckGpus, system_without_gpus_is_ok) {
  EXPECT_EQ(line("none").status, CheckStatus::skip);
  CheckReport report;
  check_gpus(report, root_.path());
  EXPECT_EQ(report.verdict(), CheckStatus::ok);
}

TEST_F(CheckGpus, slow_amd_settings_are_warnings_with_a_fix) {
  put_card("card0", "0x1002");
  put("sys/module/amdgpu/parameters/ras_enable", "1");
  put("sys/module/pcie_aspm/parameters/policy", "[default] performance powersave");
  put("sys/class/drm/card0/device/power_dpm_force_performance_level", "high");
  for (const char* name : {"ecc", "pcie", "clocks"}) EXPECT_EQ(line(name).status, CheckStatus::warn) << name;
  EXPECT_NE(line("ecc").hint.find("amdgpu.ras_enable=0"), std::string::npos);
  EXPECT_NE(line("pcie").hint.find("pcie_aspm/parameters/policy"), std::string::npos);
  EXPECT_NE(line("clocks").hint.find("/sys/class/drm/card0/device/power_dpm"), std::string::npos);
  put("sys/module/amdgpu/parameters/ras_enable", "0");
  put("sys/module/pcie_aspm/parameters/policy", "default [performance] powersave");
  put("sys/class/drm/card0/device/power_dpm_force_performance_level", "auto");
  for (const char* name : {"ecc", "pcie", "clocks"}) {
    EXPECT_EQ(line(name).status, CheckStatus::ok) << name;
    EXPECT_EQ(line(name).hint, "") << name;
  }
}

TEST(CheckBackends, unavailable_backend_with_matching_gpu_is_a_warning_with_a_fix) {
  const CheckLine no_driver = unusable_line("cuda", "the NVIDIA driver is not installed", {GpuVendor::nvidia});
  EXPECT_EQ(no_driver.status, CheckStatus::warn);
  EXPECT_NE(no_driver.hint.find("apt install nvidia-driver"), std::string::npos);
  const CheckLine no_compiler = unusable_line("cuda", "libnvrtc is not installed", {GpuVendor::nvidia});
  EXPECT_NE(no_compiler.hint.find("nvrtc"), std::string::npos);
  EXPECT_NE(unusable_line("vulkan", "x", {GpuVendor::amd}).hint.find("mesa-vulkan-drivers"), std::string::npos);
}

TEST(CheckBackends, unavailable_backend_without_matching_gpu_is_skipped) {
  EXPECT_EQ(unusable_line("cuda", "x", {}).status, CheckStatus::skip);
  EXPECT_EQ(unusable_line("cuda", "x", {GpuVendor::amd}).status, CheckStatus::skip);
  EXPECT_EQ(unusable_line("vulkan", "x", {}).status, CheckStatus::skip);
}

TEST(CheckBackends, device_of_an_unavailable_backend_is_skipped_too) {
  const DeviceInfo llvmpipe{.name = "llvmpipe", .memory_bytes = 8'000'000'000, .free_bytes = 1'000'000'000};
  const CheckLine unused = device_line("vulkan 0", llvmpipe, /*is_backend_usable=*/false);
  EXPECT_EQ(unused.status, CheckStatus::skip);
  EXPECT_EQ(unused.message, "llvmpipe; 8.00 GB, 1.00 GB free; not used");
  const CheckLine used = device_line("vulkan 0", llvmpipe, /*is_backend_usable=*/true);
  EXPECT_EQ(used.status, CheckStatus::ok);
  EXPECT_EQ(used.message, "llvmpipe; 8.00 GB, 1.00 GB free");
  const DeviceInfo old{.name = "old", .memory_bytes = 8'000'000'000, .unavailable_reason = "it lacks shaderInt64"};
  EXPECT_EQ(device_line("vulkan 1", old, true).status, CheckStatus::skip);
  EXPECT_EQ(device_line("vulkan 1", old, false).message, "old; it lacks shaderInt64; 8.00 GB");
}

TEST(CheckBackends, slow_mesa_and_missing_cooperative_matrices_are_reported) {
  const auto lines = [](const char* driver, const char* features) {
    CheckReport report;
    check_driver(report, {.name = "a GPU", .driver = driver, .features = features});
    return report.lines();
  };
  EXPECT_TRUE(lines("llvmpipe Mesa 25.2.8", "").empty());
  EXPECT_TRUE(lines("NVIDIA 550.54", "").empty());
  const std::vector<CheckLine> good = lines("radv Mesa 25.0.7", "Vulkan 1.4, cooperative matrices");
  EXPECT_EQ(good.at(0).status, CheckStatus::ok);
  EXPECT_EQ(good.at(1).status, CheckStatus::ok);
  const std::vector<CheckLine> bad = lines("radv Mesa 25.2.8", "Vulkan 1.4");
  EXPECT_EQ(bad.at(0).status, CheckStatus::warn);
  EXPECT_NE(bad.at(1).hint.find("RADV_PERFTEST=coop_matrix"), std::string::npos);
}

TEST(CheckReport, verdict_is_the_worst_status) {
  CheckReport report;
  report.add({CheckStatus::skip, "gpus", "none", "no GPU"});
  EXPECT_EQ(report.verdict(), CheckStatus::ok) << "skipped lines do not count";
  report.add({CheckStatus::ok, "machine", "memory", "much"});
  report.add({CheckStatus::warn, "machine", "clock", "slow", "faster"});
  EXPECT_EQ(report.verdict(), CheckStatus::warn);
  EXPECT_NE(report.to_text(false).find("WARN ready, with warnings: 1 ok, 1 warning, 0 failed, 1 skipped"),
            std::string::npos);
  EXPECT_EQ(report.to_json().at("counts").as_object().at("warn").to_number<int>(), 1);
}

// The report for a small model on a GPU with this memory, but with the workspaces of the CPU backend, which are as
// small as the model.
CheckReport fit_on_gpu(size_t n_free, size_t n_all) {
  CheckReport report;
  report.device = {.name = "a GPU", .memory_bytes = n_all, .free_bytes = n_free, .has_dedicated_memory = true};
  HubSettings settings;
  check_model(report, settings, {.model = ZINC_SOURCE_DIR "/tests/data/oracle/models/llama-q8_0.gguf"},
              *find_backend("cpu").value());
  return report;
}
const CheckLine& memory_line(const CheckReport& report) {
  for (const CheckLine& line : report.lines()) {
    if (line.name == "memory") return line;
  }
  ADD_FAILURE() << "no line about memory";
  return report.lines().front();
}

TEST(CheckModel, fit_uses_the_memory_of_the_default_device) {
  constexpr size_t kAmple = size_t{1} << 30;
  const CheckReport ample = fit_on_gpu(kAmple, kAmple);
  EXPECT_EQ(memory_line(ample).status, CheckStatus::ok);
  EXPECT_NE(memory_line(ample).message.find(fmt::format("{} is free on a GPU", human_bytes(kAmple))),
            std::string::npos);
  const size_t n_least =
      ample.model.at("weight_bytes").to_number<size_t>() + ample.model.at("working_bytes").to_number<size_t>();
  const size_t n_cache = ample.model.at("cache_bytes").to_number<size_t>();
  const CheckReport tight = fit_on_gpu(n_least + n_cache, kAmple);  // the KV cache gets half of the remaining memory
  EXPECT_EQ(memory_line(tight).status, CheckStatus::warn);
  EXPECT_EQ(tight.model.at("fit").as_string(), "tight");
  const int64_t n_fit = tight.model.at("largest_context").to_number<int64_t>();
  EXPECT_GT(n_fit, 256);
  EXPECT_LT(n_fit, 1024);
  EXPECT_TRUE(memory_line(tight).hint.ends_with(fmt::format(" -c {}", n_fit))) << memory_line(tight).hint;
  const CheckReport too_large = fit_on_gpu(n_least, n_least);
  EXPECT_EQ(memory_line(too_large).status, CheckStatus::fail);
  EXPECT_EQ(too_large.model.at("fit").as_string(), "too large");
  EXPECT_EQ(too_large.verdict(), CheckStatus::fail);
}

TEST(CheckModel, model_that_is_not_installed_is_judged_by_the_catalog) {
  const TestFolder folder;
  HubSettings settings;
  settings.cache = folder.path();
  const auto check_with = [&](size_t n_memory) {
    CheckReport report;
    report.device = {.name = "a GPU", .memory_bytes = n_memory, .free_bytes = n_memory, .has_dedicated_memory = true};
    report.read_bytes_per_s = 1e11;
    check_model(report, settings, {.model = "qwen3-30b-a3b"}, default_backend());  // 18.6 GB, a tenth of it active
    return report;
  };
  const CheckReport large = check_with(size_t{64} << 30);
  EXPECT_EQ(large.lines().front().status, CheckStatus::skip) << "not installed is not a failure";
  EXPECT_EQ(large.lines().front().hint, "zinc pull qwen3-30b-a3b-instruct-2507");
  EXPECT_EQ(memory_line(large).status, CheckStatus::ok);
  const auto speed = std::ranges::find(large.lines(), "speed", &CheckLine::name);
  ASSERT_NE(speed, large.lines().end());
  EXPECT_NE(speed->message.find("53.7 tok/s"), std::string::npos) << speed->message;
  EXPECT_EQ(memory_line(check_with(size_t{8} << 30)).status, CheckStatus::fail);
}

// A Q8_0 model on a backend without packed Q8_0 kernels.
TEST(CheckModel, formats_without_packed_kernels_are_named) {
  const auto check_on = [](const BackendInfo& backend) {
    CheckReport report;
    report.device = {.name = "a GPU", .memory_bytes = 1 << 30, .free_bytes = 1 << 30, .has_dedicated_memory = true};
    check_model(report, {}, {.model = ZINC_SOURCE_DIR "/tests/data/oracle/models/llama-q8_0.gguf"}, backend);
    return report;
  };
  BackendInfo backend = default_backend();
  backend.has_packed_kernel = [](const Format&) { return true; };
  const CheckReport fast = check_on(backend);
  EXPECT_TRUE(std::ranges::none_of(fast.lines(), [](const CheckLine& line) { return line.name == "formats"; }));
  backend.has_packed_kernel = [](const Format& format) { return format.name != "q8_0"; };
  backend.dequantized_bits = 16;
  const CheckReport slow = check_on(backend);
  const auto line = std::ranges::find(slow.lines(), "formats", &CheckLine::name);
  ASSERT_NE(line, slow.lines().end());
  EXPECT_EQ(line->status, CheckStatus::warn);
  EXPECT_TRUE(line->message.starts_with(
      fmt::format("q8_0 weights have no packed kernels on {} and are dequantized to 16 bits", default_backend().name)))
      << line->message;
  EXPECT_EQ(slow.model.at("slow_formats").as_array(), json::array{"q8_0"});
}

TEST(CheckModel, formats_with_packed_kernels_on_gpus_are_those_with_a_file) {
  const std::filesystem::path folder = std::filesystem::path(ZINC_SOURCE_DIR) / "src/backend/gpu/format";
  for (const char* name : {"cuda", "vulkan"}) {
    const BackendInfo& backend = *find_backend(name).value();
    EXPECT_TRUE(backend.has_packed_kernel(*find_format("q4_k"))) << name;
    for (const Format* const* f = kFormats; *f; ++f) {
      const bool has_file = std::filesystem::exists(folder / fmt::format("{}.cc", (*f)->name));
      EXPECT_EQ(backend.has_packed_kernel(**f), has_file) << (*f)->name << " on " << name;
    }
  }
}

TEST(AvailableBytes, discrete_gpu_does_not_use_host_memory) {
  constexpr size_t kAmple = size_t{1} << 50;
  EXPECT_EQ(
      available_bytes({.name = "card", .memory_bytes = kAmple, .free_bytes = kAmple / 2, .has_dedicated_memory = true}),
      kAmple / 2);
  EXPECT_EQ(available_bytes({.name = "card", .memory_bytes = kAmple, .has_dedicated_memory = true}), kAmple);
  EXPECT_LT(available_bytes({.name = "processor", .memory_bytes = kAmple}), kAmple);
  EXPECT_EQ(available_bytes({.name = "part of the machine", .memory_bytes = kAmple, .free_bytes = 5}), 5u);
}

}  // namespace
}  // namespace zinc
