// Compiles every kernel for every kind of GPU, without one. Needs NVRTC: the CUDA toolkit's, or the Python package
// nvidia-cuda-nvrtc; skipped where neither is.
#include "backend/cuda/kernel_store.h"

#include <gtest/gtest.h>

#include <fstream>

#include "backend/cuda/formats.h"
#include "tests/support/kernel_compiles.h"
#include "tests/support/test_files.h"

namespace zinc::cuda {
namespace {

// Of a normed row; of experts found by their router; of a mix with a shared expert; of heads, a gate behind them.
constexpr const char* kNormedProduct =
    "inline constexpr ProductShape kShape = {1024, 1, 0, 0, -1, 0, 0, 0, 0, 0, 0, 3, 6, 1, 24, 4096, 4096, 86016};";
constexpr const char* kNormedWideProduct =  // likewise of a format of whom a ring has few segments: fewer warps
    "inline constexpr ProductShape kShape = {1024, 1, 0, 0, -1, 0, 0, 0, 0, 0, 0, 3, 4, 1, 24, 4096, 4096, 86016};";
constexpr const char* kExpertProduct =
    "inline constexpr ProductShape kShape = {2880, 1, 0, 0, 3, 4, 0, 1, 0, 32, 2, 1, 8, 1, 3, 3840, 2304, 86016, 12, "
    "1, 1, 0, 0, 90};";
constexpr const char* kMixedProduct =
    "inline constexpr ProductShape kShape = {512, 0, 0, 0, -1, 0, 8, 1, 8, 256, 1, 1, 8, 2, 1, 5760, 288, 86016, 8, 0, "
    "1};";
constexpr const char* kHeadsProduct =
    "inline constexpr ProductShape kShape = {4096, 2, 128, 0, -1, 0, 0, 0, 0, 0, 0, 1, 8, 2, 2, 5120, 512, 86016};";
constexpr const char* kWideProduct =  // an odd number of segments for two blocks
    "inline constexpr ProductShape kShape = {12544, 1, 0, 0, -1, 0, 0, 0, 0, 0, 0, 2, 4, 2, 2, 50176, 1568, 43008};";
constexpr const char* kAttendF16 = "inline constexpr AttendShape kShape = {1, 128, 128, 4, 4, 0, 0, 1, -1, 1};";
constexpr const char* kAttendQ8 = "inline constexpr AttendShape kShape = {2, 256, 192, 8, 4, 1024, 1, 0, 2, 2};";
constexpr const char* kAttendFp8 = "inline constexpr AttendShape kShape = {3, 128, 128, 4, 4, 0, 0, 1, -1, 1};";

// Shapes are examples here; those of real models are in tests/launched_programs_test.cc. What steps of one row alone
// are made of is launched on cards with much shared memory only.
std::vector<KernelProgram> programs(bool every_format, bool has_one_row = true) {
  std::vector<KernelProgram> all;
  for (const char* file : {"rows", "moe", "sample", "recurrent", "recurrent_chunks", "peaks"}) {
    all.push_back({file, ""});
  }
  for (const char* kept : {"kKvF32", "kKvF16", "kKvQ8", "kKvFp8"}) {
    const std::string shape = fmt::format("inline constexpr KvFormat kKept = {};", kept);
    all.push_back({"attention", "", shape});
    if (kept == std::string_view("kKvF32")) continue;
    for (const auto& [n_warps, n_sets] : {std::pair{1, 1}, {2, 2}, {4, 1}, {8, 1}}) {
      all.push_back({"attention_units", "",
                     fmt::format("inline constexpr UnitShape kShape = {{{}, {}, {}}};", kept, n_warps, n_sets)});
    }
  }
  all.push_back({"residual", "", "inline constexpr int kStreamSegments = 3;"});
  for (const char* shape : {kExpertProduct, kMixedProduct, kHeadsProduct}) all.push_back({"product", "q4_k", shape});
  all.push_back({"product", "f32+q4_k+q6_k", kNormedProduct});
  for (const char* formats : {"f16", "f32+q8_0", "q4_k"}) all.push_back({"product", formats, kWideProduct});
  for (const char* shape : {kAttendF16, kAttendQ8, kAttendFp8}) all.push_back({"attend_one", "", shape});
  for (const PanelFormat* f = kPanelFormats; !f->name.empty(); ++f) {
    if (!every_format && f->name != "q4_k" && f->name != "q8_0" && f->name != "f16") continue;
    all.push_back({"pack", std::string(f->name)});
    all.push_back({"linear", std::string(f->name)});
    all.push_back({"product", std::string(f->name),
                   f->rounded_block > 0 && f->group_bytes >= 32 ? kNormedWideProduct : kNormedProduct});
    all.push_back({f->rounded_block > 0 ? "gemm" : "gemm_floats", std::string(f->name)});
    if (f->rounded_block > 0) all.push_back({"gemm_wide", std::string(f->name)});
  }
  if (!has_one_row) {
    std::erase_if(all, [](const KernelProgram& p) { return p.file == "product" || p.file == "attend_one"; });
  }
  return all;
}

class KernelsTest : public testing::TestWithParam<const char*> {};

TEST_P(KernelsTest, compile_and_keep_to_their_registers) {
  if (!nvrtc_library()) GTEST_SKIP() << "NVRTC is not installed";
  const std::string architecture = GetParam();
  const bool has_one_row = architecture == "sm_90a";
  for (const std::string& message : compile_failures(programs(/*every_format=*/true, has_one_row), architecture)) {
    ADD_FAILURE() << message;
  }
}
INSTANTIATE_TEST_SUITE_P(, KernelsTest, testing::Values("sm_75", "sm_80", "sm_86", "sm_89", "sm_90a", "sm_120"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Kernels, a_wrong_program_is_an_error_with_the_compilers_log) {
  if (!nvrtc_library()) GTEST_SKIP() << "NVRTC is not installed";
  const Result<Nvrtc::Compiled> made =
      Nvrtc::open(*nvrtc_library()).value().compile("int f() { return no_such_name; }", {}, "sm_80");
  ASSERT_FALSE(made.ok());
  EXPECT_NE(made.error().message.find("no_such_name"), std::string::npos) << made.error().message;
}

class KernelStoreTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!nvrtc_library()) GTEST_SKIP() << "NVRTC is not installed";
  }
  // How many compiles it takes to get a program with a new store, as a new process has.
  int n_compiled() const {
    KernelStore store("sm_80", cache_, *nvrtc_library());
    const Result<std::vector<char>> cubin = store.cubin({"peaks", ""});
    EXPECT_TRUE(cubin.ok() && !cubin.value().empty());
    return store.n_compiled();
  }
  const TestFolder folder_;
  const std::filesystem::path cache_ = folder_ / "cache";
};

TEST_F(KernelStoreTest, what_was_compiled_once_is_read_from_then_on) {
  EXPECT_EQ(n_compiled(), 1);
  EXPECT_EQ(n_compiled(), 0);
}

TEST_F(KernelStoreTest, a_damaged_entry_is_compiled_anew_and_replaced) {
  EXPECT_EQ(n_compiled(), 1);
  for (const auto& entry : std::filesystem::directory_iterator(cache_ / "kernels")) {
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(200);
    file.put('\x7F');
  }
  EXPECT_EQ(n_compiled(), 1);
  EXPECT_EQ(n_compiled(), 0);
}

TEST_F(KernelStoreTest, a_folder_that_cannot_be_written_is_no_error) {
  put(cache_, "a file where the folder should be");
  EXPECT_EQ(n_compiled(), 1);
  EXPECT_EQ(n_compiled(), 1);
}

}  // namespace
}  // namespace zinc::cuda
