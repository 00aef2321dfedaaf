// Compiles every kernel for every GPU architecture, without a GPU. Needs NVRTC, from the CUDA toolkit or the Python
// package nvidia-cuda-nvrtc; otherwise skipped.
#include "backend/cuda/kernel_cache.h"

#include <gtest/gtest.h>

#include <fstream>

#include "backend/gpu/panel_format.h"
#include "backend/simt/host/gemm_small_shape.h"
#include "tests/support/kernel_compiles.h"
#include "tests/support/test_files.h"

namespace zinc::cuda {
namespace {

bool has_bulk_copies(const std::string& architecture) { return architecture == "sm_90a" || architecture == "sm_120"; }

// A program of the gemv kernels: geometry, PDL and policies.
struct Gemv {
  const char* file;
  std::string formats;
  simt::GemvShape shape;
  simt::GemvPdl pdl = {};
  std::string policies;
};
std::string dense(const std::string& prologue, const std::string& epilogue) {
  return fmt::format("using Prologue = {}; using Epilogue = {}; using SplitKInput = NoInput;", prologue, epilogue);
}
const std::string kNorm = dense("NormPrologue", "PlainEpilogue");
// The second for a format with large segments: fewer warps.
constexpr simt::GemvShape kNormShape = {1024, 1, 1, 1, 3, 0, 6, 1, 24, 4096, 4096, 86016, 1, 4096, 2},
                          kNormWideShape = {1024, 1, 1, 1, 3, 0, 4, 1, 24, 4096, 4096, 86016, 1, 4096, 2};
// An odd number of segments for two blocks.
constexpr simt::GemvShape kOddSegments = {12544, 1, 1, 1, 2, 0, 4, 2, 2, 50176, 1568, 43008, 1, 4096, 2};
const std::vector<Gemv> kGemvs = {
    {"gemv",
     "q4_k",
     {4096, 1, 1, 0, 1, 0, 8, 2, 2, 5120, 512, 86016, 1, 4096, 2},
     {},
     dense("GatedHeadsPrologue<128, 0>", "ResidualEpilogue")},
    {"gemv",
     "q4_k",
     {4096, 1, 1, 0, 1, 0, 8, 2, 2, 5120, 512, 86016, 1, 4096, 2},
     {},
     dense("QuantizedPrologue", "ResidualEpilogue")},
    {"gemv",
     "q4_k",
     {1024, 2, 1, 1, 1, 0, 8, 1, 1, 4096, 512, 86016, 1, 4096, 2},
     {},
     dense("NormResidualPrologue", "GluEpilogue<0>")},
    {"gemv_experts",
     "q4_k",
     {2880, 2, 1, 1, 1, 90, 8, 1, 3, 3840, 2304, 86016, 1, 4096, 2},
     {1, 0, 1},
     "using Prologue = NormPrologue; using Epilogue = GluEpilogue<3>; using Experts = StoringTopKRouter<32, 4, 2, "
     "12>;"},
    {"gemv_experts",
     "q4_k",
     {2880, 1, 1, 0, 1, 90, 8, 1, 3, 3840, 1152, 86016, 1, 4096, 2},
     {},
     "using Prologue = PlainPrologue; using Epilogue = PlainEpilogue; using Experts = SelectedExperts<4>;"},
    {"gemv_moe_down",
     "q4_k",
     {512, 9, 9, 0, 1, 0, 8, 2, 1, 5760, 288, 86016, 1, 4096, 2},
     {0, 1, 0},
     "using Rows = PlainInput; using Experts = TopKRouter<256, 8, 1, 8>; using SharedDown = GatedSharedDown<8>;"},
    {"gemv_moe_down",
     "q4_k",
     {512, 8, 8, 0, 1, 0, 8, 2, 1, 5760, 256, 86016, 1, 4096, 2},
     {},
     "using Rows = QuantizedInput; using Experts = WeightedExperts<8>; using SharedDown = NoSharedDown;"},
    {"gemv", "f32+q4_k+q6_k", kNormShape, {}, kNorm},
    // A GLU with a router that has an input of its own.
    {"gemv",
     "f32+q4_k",
     {2816, 2, 1, 1, 2, 0, 8, 2, 2, 11264, 704, 86016, 1, 4096, 2},
     {},
     "using Prologue = NormPrologue; using Epilogue = GluEpilogue<1>; using SplitKInput = PlainInput;"},
    {"gemv", "f16", kOddSegments, {}, kNorm},
    {"gemv", "f32+q8_0", kOddSegments, {}, kNorm},
    {"gemv", "q4_k", kOddSegments, {}, kNorm},
};
// As GemvSchedule adapts it: GeForce Blackwell shares less shared memory between the blocks of two launches.
KernelProgram program_of(Gemv gemv, const std::string& architecture) {
  constexpr int kGeForceWarpPairs = 4;
  gemv.shape.has_bulk_copies = has_bulk_copies(architecture) ? 1 : 0;
  if (!has_bulk_copies(architecture)) gemv.shape.cluster_size = 1;
  if (architecture == "sm_120") gemv.shape.n_warp_pairs = kGeForceWarpPairs;
  return {gemv.file, gemv.formats,
          simt::host::shape_definition("GemvShape", gemv.shape) +
              simt::host::shape_definition("GemvPdl", gemv.pdl, "kPdl") + gemv.policies};
}
constexpr const char* kAttend = "inline constexpr AttentionDecodeShape kShape = {128, 128, 4, 4, 0, 0, -1, 1, 1, 1};";
constexpr const char* kAttendWindow =
    "inline constexpr AttentionDecodeShape kShape = {256, 192, 8, 4, 1024, 1, 2, 1, 0, 2};";
constexpr const char* kUnits = "inline constexpr AttentionDecodeShape kShape = {128, 128, 8, 8, 0, 0, -1, 0, 0, 0};";
constexpr const char* kUnitsWindow =
    "inline constexpr AttentionDecodeShape kShape = {256, 192, 8, 4, 1024, 1, 2, 0, 0, 0};";

// Every tile width, for dense matrices and for experts.
void append_gemm_small(const gpu::PanelFormat& format, const std::string& architecture,
                       std::vector<KernelProgram>& to) {
  for (const int n_columns : {8, 16, 32, 64}) {
    for (const bool has_experts : {false, true}) {
      const simt::GemmSmallShape shape =
          simt::host::gemm_small_shape(n_columns, has_experts, format.segment_bytes(), has_bulk_copies(architecture));
      to.push_back({"gemm_small", std::string(format.name), simt::host::shape_definition("GemmSmallShape", shape)});
    }
  }
  if (format.q8_block != simt::kSegmentElems || !has_bulk_copies(architecture)) return;
  for (const int64_t n_row_tiles : {96, 2048}) {
    for (const int n_columns : {16, 32, 64, 128}) {
      const simt::GemmSmallWgmmaShape shape =
          simt::host::gemm_small_wgmma_shape(n_row_tiles, n_columns, 132, format.segment_bytes());
      to.push_back(
          {"gemm_small_wgmma", std::string(format.name), simt::host::shape_definition("GemmSmallWgmmaShape", shape)});
    }
  }
}

// Example shapes; those of real models are in tests/launched_programs_test.cc.
std::vector<KernelProgram> programs(const std::string& architecture) {
  const bool has_tensor_cores = architecture != "sm_75";
  std::vector<KernelProgram> all;
  for (const char* file : {"row_ops", "sample", "recurrent", "recurrent_chunks", "delta_layer", "peaks"}) {
    all.push_back({file, ""});
  }
  for (const std::string_view kv_format : simt::host::kv_format_names()) {
    all.push_back({"attention", "", "", kv_format});
    if (kv_format == "f32") continue;
    for (const auto& [n_warps, n_sets] : {std::pair{1, 1}, {2, 2}, {4, 1}, {8, 1}}) {
      all.push_back({"attention_mma", "",
                     fmt::format("inline constexpr AttentionMmaShape kShape = {{{}, {}, -1, {}}};", n_warps, n_sets,
                                 kv_format == "f16" ? 1 : 0),
                     kv_format});
    }
    if (has_tensor_cores) all.push_back({"attention_decode", "", kAttend, kv_format});
    all.push_back({"attention_units", "", kUnits, kv_format});
  }
  if (has_tensor_cores) all.push_back({"attention_decode", "", kAttendWindow, "q8_0"});
  all.push_back({"attention_units", "", kUnitsWindow, "q8_0"});
  for (const bool has_next : {false, true}) {
    all.push_back({"norm_residual", "",
                   fmt::format("inline constexpr int kResidualSegments = 3; inline constexpr bool kHasNextNorm = {};",
                               has_next)});
  }
  for (const int n : {1, 2, 4})
    all.push_back({"combine", "", fmt::format("inline constexpr int kCombineSegments = {};", n)});
  for (const simt::RouteShape& shape : {simt::RouteShape{256, 8, 1}, {1024, 32, 0}}) {
    all.push_back({"moe", "", simt::host::shape_definition("RouteShape", shape)});
  }
  for (const Gemv& gemv : kGemvs) all.push_back(program_of(gemv, architecture));
  for (const gpu::PanelFormat* const* format = gpu::kPanelFormats; *format; ++format) {
    const gpu::PanelFormat* f = *format;
    const bool is_wide = f->q8_block > 0 && f->group_bytes >= 32;
    all.push_back({"pack", std::string(f->name)});
    all.push_back({"linear", std::string(f->name)});
    all.push_back(
        program_of({"gemv", std::string(f->name), is_wide ? kNormWideShape : kNormShape, {}, kNorm}, architecture));
    all.push_back({f->q8_block > 0 ? "gemm" : "gemm_floats", std::string(f->name)});
    if (f->q8_block > 0) all.push_back({"gemm_wgmma", std::string(f->name)});
    if (f->q8_block > 0 && has_tensor_cores) append_gemm_small(*f, architecture, all);
  }
  return all;
}

class KernelsTest : public testing::TestWithParam<const char*> {};

TEST_P(KernelsTest, compile_without_register_spills) {
  if (!nvrtc_library()) GTEST_SKIP() << "NVRTC is not installed";
  const std::string architecture = GetParam();
  for (const std::string& message : compile_failures(programs(architecture), architecture)) {
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
