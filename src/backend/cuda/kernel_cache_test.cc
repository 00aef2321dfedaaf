// Compiles every kernel for every GPU architecture, without a GPU. Needs NVRTC, from the CUDA toolkit or the Python
// package nvidia-cuda-nvrtc; otherwise skipped.
#include "backend/cuda/kernel_cache.h"

#include <gtest/gtest.h>

#include <fstream>

#include "backend/gpu/panel_format.h"
#include "tests/support/kernel_compiles.h"
#include "tests/support/test_files.h"

namespace zinc::cuda {
namespace {

// Gemv shapes: norm prologue; routed experts; MoE down with a shared expert; gated norm over heads.
constexpr const char* kNormGemv =
    "inline constexpr GemvShape kShape = {1024, 1, 0, 0, -1, 0, 0, 0, 0, 0, 0, 3, 6, 1, 24, 4096, 4096, 86016};";
constexpr const char* kNormWideGemv =  // likewise for a format with large segments: fewer warps
    "inline constexpr GemvShape kShape = {1024, 1, 0, 0, -1, 0, 0, 0, 0, 0, 0, 3, 4, 1, 24, 4096, 4096, 86016};";
constexpr const char* kExpertGemv =
    "inline constexpr GemvShape kShape = {2880, 1, 0, 0, 3, 4, 0, 1, 0, 32, 2, 1, 8, 1, 3, 3840, 2304, 86016, 12, "
    "1, 1, 0, 0, 90};";
constexpr const char* kMoeDownGemv =
    "inline constexpr GemvShape kShape = {512, 0, 0, 0, -1, 0, 8, 1, 8, 256, 1, 1, 8, 2, 1, 5760, 288, 86016, 8, 0, "
    "1};";
constexpr const char* kGatedNormGemv =
    "inline constexpr GemvShape kShape = {4096, 2, 128, 0, -1, 0, 0, 0, 0, 0, 0, 1, 8, 2, 2, 5120, 512, 86016};";
constexpr const char* kWideGemv =  // an odd number of segments for two blocks
    "inline constexpr GemvShape kShape = {12544, 1, 0, 0, -1, 0, 0, 0, 0, 0, 0, 2, 4, 2, 2, 50176, 1568, 43008};";
constexpr const char* kAttendF16 =
    "inline constexpr AttentionDecodeShape kShape = {1, 128, 128, 4, 4, 0, 0, 1, -1, 1};";
constexpr const char* kAttendQ8 =
    "inline constexpr AttentionDecodeShape kShape = {2, 256, 192, 8, 4, 1024, 1, 0, 2, 2};";
constexpr const char* kAttendFp8 =
    "inline constexpr AttentionDecodeShape kShape = {3, 128, 128, 4, 4, 0, 0, 1, -1, 1};";

// Example shapes; those of real models are in tests/launched_programs_test.cc. The kernels of batch-1 decode run only
// on GPUs with large shared memory.
std::vector<KernelProgram> programs(bool every_format, bool has_decode_kernels = true) {
  std::vector<KernelProgram> all;
  for (const char* file : {"row_ops", "moe", "sample", "recurrent", "recurrent_chunks", "peaks"}) {
    all.push_back({file, ""});
  }
  for (const char* kv_format : {"kKvF32", "kKvF16", "kKvQ8", "kKvFp8"}) {
    const std::string shape = fmt::format("inline constexpr KvFormat kKvFormat = {};", kv_format);
    all.push_back({"attention", "", shape});
    if (kv_format == std::string_view("kKvF32")) continue;
    for (const auto& [n_warps, n_sets] : {std::pair{1, 1}, {2, 2}, {4, 1}, {8, 1}}) {
      all.push_back(
          {"attention_mma", "",
           fmt::format("inline constexpr AttentionMmaShape kShape = {{{}, {}, {}}};", kv_format, n_warps, n_sets)});
    }
  }
  all.push_back({"norm_residual", "", "inline constexpr int kResidualSegments = 3;"});
  for (const char* shape : {kExpertGemv, kMoeDownGemv, kGatedNormGemv}) all.push_back({"gemv", "q4_k", shape});
  all.push_back({"gemv", "f32+q4_k+q6_k", kNormGemv});
  for (const char* formats : {"f16", "f32+q8_0", "q4_k"}) all.push_back({"gemv", formats, kWideGemv});
  for (const char* shape : {kAttendF16, kAttendQ8, kAttendFp8}) all.push_back({"attention_decode", "", shape});
  for (const gpu::PanelFormat* const* format = gpu::kPanelFormats; *format; ++format) {
    const gpu::PanelFormat* f = *format;
    if (!every_format && f->name != "q4_k" && f->name != "q8_0" && f->name != "f16") continue;
    all.push_back({"pack", std::string(f->name)});
    all.push_back({"linear", std::string(f->name)});
    all.push_back({"gemv", std::string(f->name), f->q8_block > 0 && f->group_bytes >= 32 ? kNormWideGemv : kNormGemv});
    all.push_back({f->q8_block > 0 ? "gemm" : "gemm_floats", std::string(f->name)});
    if (f->q8_block > 0) all.push_back({"gemm_wgmma", std::string(f->name)});
  }
  if (!has_decode_kernels) {
    std::erase_if(all, [](const KernelProgram& p) { return p.file == "gemv" || p.file == "attention_decode"; });
  }
  return all;
}

class KernelsTest : public testing::TestWithParam<const char*> {};

TEST_P(KernelsTest, compile_without_register_spills) {
  if (!nvrtc_library()) GTEST_SKIP() << "NVRTC is not installed";
  const std::string architecture = GetParam();
  const bool has_decode_kernels = architecture == "sm_90a";
  for (const std::string& message :
       compile_failures(programs(/*every_format=*/true, has_decode_kernels), architecture)) {
    ADD_FAILURE() << message;
  }
}
INSTANTIATE_TEST_SUITE_P(, KernelsTest, testing::Values("sm_75", "sm_80", "sm_86", "sm_89", "sm_90a", "sm_120"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Kernels, a_program_that_does_not_compile_is_an_error_with_the_compilers_log) {
  if (!nvrtc_library()) GTEST_SKIP() << "NVRTC is not installed";
  const Result<Nvrtc::Compiled> compiled =
      Nvrtc::open(*nvrtc_library()).value().compile("int f() { return no_such_name; }", {}, "sm_80");
  ASSERT_FALSE(compiled.ok());
  EXPECT_NE(compiled.error().message.find("no_such_name"), std::string::npos) << compiled.error().message;
}

class KernelCacheTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!nvrtc_library()) GTEST_SKIP() << "NVRTC is not installed";
  }
  // The number of compiles to get a program with a new KernelCache, as in a new process.
  int n_compiled() const {
    KernelCache kernels("sm_80", cache_dir_, *nvrtc_library());
    const Result<std::vector<char>> cubin = kernels.get_or_compile({"peaks", ""});
    EXPECT_TRUE(cubin.ok() && !cubin.value().empty());
    return kernels.n_compiled();
  }
  const TestFolder folder_;
  const std::filesystem::path cache_dir_ = folder_ / "cache";
};

TEST_F(KernelCacheTest, a_compiled_program_is_read_from_the_cache) {
  EXPECT_EQ(n_compiled(), 1);
  EXPECT_EQ(n_compiled(), 0);
}

TEST_F(KernelCacheTest, a_corrupt_entry_is_recompiled_and_replaced) {
  EXPECT_EQ(n_compiled(), 1);
  for (const auto& entry : std::filesystem::directory_iterator(cache_dir_ / "kernels")) {
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(200);
    file.put('\x7F');
  }
  EXPECT_EQ(n_compiled(), 1);
  EXPECT_EQ(n_compiled(), 0);
}

TEST_F(KernelCacheTest, an_unwritable_cache_folder_is_not_an_error) {
  put(cache_dir_, "a file where the folder should be");
  EXPECT_EQ(n_compiled(), 1);
  EXPECT_EQ(n_compiled(), 1);
}

}  // namespace
}  // namespace zinc::cuda
