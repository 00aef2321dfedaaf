// Compiles every kernel for every kind of GPU, without one. Needs NVRTC: the CUDA toolkit's, or the Python package
// nvidia-cuda-nvrtc; skipped where neither is.
#include "backend/cuda/kernel_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <fstream>
#include <thread>

#include "backend/cuda/formats.h"
#include "backend/simt/params.h"

namespace zinc::cuda {
namespace {

// A Python package's library, "" if there is none.
std::string packaged_library() {
  const char* const command =
      "python3 -c \"import glob, sys; "
      "print(next(iter(sum((glob.glob(p + '/nvidia/*/lib/libnvrtc.so.1?') for p in sys.path), [])), ''), end='')\" "
      "2>/dev/null";
  std::array<char, 4096> text{};
  std::FILE* const pipe = popen(command, "r");
  if (!pipe) return "";
  const size_t n = std::fread(text.data(), 1, text.size(), pipe);
  pclose(pipe);
  return std::string(text.data(), n);
}

const std::string* library() {  // nullptr: no NVRTC here
  static const std::string found = packaged_library();
  static const bool is_there = Nvrtc::open(found).ok();
  return is_there ? &found : nullptr;
}

// Of a normed row; of experts found by their router; of a mix with a shared expert; of heads, a gate behind them.
constexpr const char* kNormedProduct =
    "inline constexpr ProductShape kShape = {1024, 1, 0, 0, -1, 0, 0, 0, 0, 0, 0, 3, 6, 1, 24, 4096, 4096, 86016};";
constexpr const char* kExpertProduct =
    "inline constexpr ProductShape kShape = {2880, 1, 0, 0, 3, 4, 0, 1, 0, 32, 2, 1, 8, 1, 3, 3840, 2304, 86016, 12, "
    "1, 1};";
constexpr const char* kMixedProduct =
    "inline constexpr ProductShape kShape = {512, 0, 0, 0, -1, 0, 8, 1, 8, 256, 1, 1, 8, 2, 1, 5760, 288, 86016, 8, 0, "
    "1};";
constexpr const char* kHeadsProduct =
    "inline constexpr ProductShape kShape = {4096, 2, 128, 0, -1, 0, 0, 0, 0, 0, 0, 1, 8, 2, 2, 5120, 512, 86016};";
constexpr const char* kSplitProduct =  // experts' gate and up, the last panel's first units from another cluster
    "inline constexpr ProductShape kShape = {2880, 1, 0, 0, 3, 4, 0, 1, 0, 32, 2, 1, 8, 2, 6, 3840, 2304, 86016, 12, "
    "1, 1, 1};";
constexpr const char* kWideProduct =  // an odd number of segments for two blocks
    "inline constexpr ProductShape kShape = {12544, 1, 0, 0, -1, 0, 0, 0, 0, 0, 0, 2, 4, 2, 2, 50176, 1568, 43008};";
constexpr const char* kAttendF16 = "inline constexpr AttendShape kShape = {1, 128, 128, 4, 4, 0, 0, 1, -1, 1};";
constexpr const char* kAttendQ8 = "inline constexpr AttendShape kShape = {2, 256, 192, 8, 4, 1024, 1, 0, 2, 2};";
constexpr const char* kAttendFp8 = "inline constexpr AttendShape kShape = {3, 128, 128, 4, 4, 0, 0, 1, -1, 1};";

// What steps of one row alone are made of is launched from Hopper on, and compiled there.
std::vector<KernelProgram> programs(bool every_format, bool has_one_row = true) {
  std::vector<KernelProgram> all;
  for (const char* file : {"rows", "moe", "sample", "recurrent", "recurrent_chunks", "peaks"}) {
    all.push_back({file, ""});
  }
  for (const char* kept : {"kKvF32", "kKvF16", "kKvQ8", "kKvFp8"}) {
    const std::string shape = fmt::format("inline constexpr KvFormat kKept = {};", kept);
    all.push_back({"attention", "", shape});
    if (kept == std::string_view("kKvF32")) continue;
    for (const auto& [n_warps, n_sets] : {std::pair{1, 2}, {2, 2}, {4, 1}, {8, 1}}) {
      all.push_back({"attention_units", "",
                     fmt::format("inline constexpr UnitShape kShape = {{{}, {}, {}}};", kept, n_warps, n_sets)});
    }
  }
  all.push_back({"residual", "", "inline constexpr int kStreamSegments = 3;"});
  for (const char* shape : {kExpertProduct, kMixedProduct, kHeadsProduct}) all.push_back({"product", "q4_k", shape});
  for (const char* formats : {"mxfp4", "q4_k"}) all.push_back({"product", formats, kSplitProduct});
  all.push_back({"product", "f32+q4_k+q6_k", kNormedProduct});
  for (const char* formats : {"f16", "f32+q8_0", "q4_k"}) all.push_back({"product", formats, kWideProduct});
  for (const char* shape : {kAttendF16, kAttendQ8, kAttendFp8}) all.push_back({"attend_one", "", shape});
  for (const PanelFormat* f = kPanelFormats; !f->name.empty(); ++f) {
    if (!every_format && f->name != "q4_k" && f->name != "q8_0" && f->name != "f16") continue;
    all.push_back({"pack", std::string(f->name)});
    all.push_back({"linear", std::string(f->name)});
    all.push_back({"product", std::string(f->name), kNormedProduct});
    all.push_back({f->rounded_block > 0 ? "gemm" : "gemm_floats", std::string(f->name)});
    if (f->rounded_block > 0) all.push_back({"gemm_wide", std::string(f->name)});
  }
  if (!has_one_row) {
    std::erase_if(all, [](const KernelProgram& p) { return p.file == "product" || p.file == "attend_one"; });
  }
  return all;
}

// Kernels that every token or every chunk of a prompt runs: registers that do not suffice cost them time.
bool is_hot(std::string_view kernel) {
  constexpr std::array kHot = {"linear_", "product", "gemm", "attend_", "delta_one", "delta_chunks", "sample_"};
  return std::ranges::any_of(kHot, [&](std::string_view name) { return kernel.starts_with(name); });
}

// Formats that are meant to be fast. The others' kernels are right, and may spill.
bool is_fast(std::string_view formats) {
  constexpr std::array kOthers = {"q4_1", "q5_0", "q5_1", "iq4_nl"};
  return std::ranges::find(kOthers, formats) == kOthers.end();
}

// Bytes of registers that a hot kernel may keep in memory; the first row that its name contains counts. What is allowed
// is what ptxas spends here and there where two blocks share the registers (28 bytes at most, seen in no timing).
struct SpillLimit {
  std::string_view part_of_name;
  int n_bytes;
};
constexpr std::array<SpillLimit, 4> kSpillLimits = {{{"gemm", 0}, {"delta_", 0}, {"attend_", 16}, {"", 32}}};

int spill_limit(std::string_view kernel) {
  return std::ranges::find_if(
             kSpillLimits,
             [&](const SpillLimit& limit) { return kernel.find(limit.part_of_name) != std::string_view::npos; })
      ->n_bytes;
}

int spilled_bytes(std::string_view before) {  // "24 bytes stack frame, 20": the last number
  int n_bytes = 0;
  const std::string_view number = before.substr(before.rfind(' ') + 1);
  std::from_chars(number.data(), number.data() + number.size(), n_bytes);
  return n_bytes;
}

// Hot kernels of which the compiler's log says that they keep registers in memory.
std::string spills_of(std::string_view log) {
  constexpr std::string_view kEntry = "Compiling entry function '", kSpill = " bytes spill stores";
  std::string found;
  for (size_t at = log.find(kEntry); at != std::string_view::npos;) {
    const size_t name = at + kEntry.size(), next = log.find(kEntry, name);
    const std::string_view kernel = log.substr(name, log.find('\'', name) - name), part = log.substr(name, next - name);
    const size_t spill = part.find(kSpill);
    if (is_hot(kernel) && spill != std::string_view::npos &&
        spilled_bytes(part.substr(0, spill)) > spill_limit(kernel)) {
      const size_t line = part.rfind('\n', spill) + 1;
      found += fmt::format("{}: {}; ", kernel, part.substr(line, part.find('\n', spill) - line));
    }
    at = next;
  }
  return found;
}

// Two threads: all programs for one architecture take half a minute of one core.
std::vector<std::string> failures(const std::vector<KernelProgram>& all, const std::string& architecture) {
  const Nvrtc compiler = Nvrtc::open(*library()).value();
  std::vector<std::string> messages(all.size());
  const auto compile = [&](size_t first) {
    for (size_t i = first; i < all.size(); i += 2) {
      const Result<Nvrtc::Compiled> made =
          compiler.compile(all[i].text(), simt_sources(), architecture, /*with_resources=*/true);
      const std::string spills = made.ok() && is_fast(all[i].format) ? spills_of(made.value().log) : "";
      if (!spills.empty()) messages[i] = fmt::format("{} {} spills: {}", all[i].file, all[i].format, spills);
      if (!made.ok()) messages[i] = fmt::format("{} {}: {}", all[i].file, all[i].format, made.error().message);
    }
  };
  std::thread other(compile, 1);
  compile(0);
  other.join();
  std::erase(messages, "");
  return messages;
}

class KernelsTest : public testing::TestWithParam<const char*> {};

TEST_P(KernelsTest, compile_and_the_hot_ones_keep_to_their_registers) {
  if (!library()) GTEST_SKIP() << "NVRTC is not installed";
  const std::string architecture = GetParam();
  const bool has_one_row = architecture == "sm_90a" || architecture == "sm_120";
  for (const std::string& message : failures(programs(architecture == "sm_90a", has_one_row), architecture)) {
    ADD_FAILURE() << message;
  }
}
INSTANTIATE_TEST_SUITE_P(, KernelsTest, testing::Values("sm_75", "sm_80", "sm_89", "sm_90a", "sm_120"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Kernels, a_wrong_program_is_an_error_with_the_compilers_log) {
  if (!library()) GTEST_SKIP() << "NVRTC is not installed";
  const Result<Nvrtc::Compiled> made =
      Nvrtc::open(*library()).value().compile("int f() { return no_such_name; }", {}, "sm_80");
  ASSERT_FALSE(made.ok());
  EXPECT_NE(made.error().message.find("no_such_name"), std::string::npos) << made.error().message;
}

class KernelStoreTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!library()) GTEST_SKIP() << "NVRTC is not installed";
    folder_ = std::filesystem::path(testing::TempDir()) / "zinc_kernel_store_test";
    std::filesystem::remove_all(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  // How many compiles it takes to get a program with a new store, as a new process has.
  int n_compiled() const {
    KernelStore store("sm_80", folder_, *library());
    const Result<std::vector<char>> cubin = store.cubin({"peaks", ""});
    EXPECT_TRUE(cubin.ok() && !cubin.value().empty());
    return store.n_compiled();
  }
  std::filesystem::path folder_;
};

TEST_F(KernelStoreTest, what_was_compiled_once_is_read_from_then_on) {
  EXPECT_EQ(n_compiled(), 1);
  EXPECT_EQ(n_compiled(), 0);
}

TEST_F(KernelStoreTest, a_damaged_entry_is_compiled_anew_and_replaced) {
  EXPECT_EQ(n_compiled(), 1);
  for (const auto& entry : std::filesystem::directory_iterator(folder_ / "kernels")) {
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(200);
    file.put('\x7F');
  }
  EXPECT_EQ(n_compiled(), 1);
  EXPECT_EQ(n_compiled(), 0);
}

TEST_F(KernelStoreTest, a_folder_that_cannot_be_written_is_no_error) {
  std::ofstream(folder_) << "a file where the folder should be";
  EXPECT_EQ(n_compiled(), 1);
  EXPECT_EQ(n_compiled(), 1);
}

}  // namespace
}  // namespace zinc::cuda
