// gemm_small.cu and gemm_small_wgmma.cu against linear.cu, bit for bit, for every quantized format and all tile widths.
// On a GPU, or on the emulated one; skipped without.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "backend/cuda/device.h"
#include "backend/gpu/panel_format.h"
#include "backend/simt/host/gemm_small_shape.h"
#include "backend/simt/host/workspace.h"
#include "base/ceil_div.h"
#include "tensor/format.h"

namespace zinc::cuda {
namespace {

using Floats = std::vector<float>;

class GemmSmallTest : public testing::TestWithParam<const gpu::PanelFormat*> {
 protected:
  static constexpr int kRows = 64, kImageRows = 128, kExperts = 3, kUsed = 2;

  void SetUp() override {
    const Result<const DriverApi*> api = load_driver();
    if (!api.ok()) GTEST_SKIP() << "no GPU here: " << api.error().message;
    auto opened = Device::open(*api.value(), {}, [this](const KernelProgram& program) -> Result<std::vector<char>> {
      ZINC_TRY(nvrtc, Nvrtc::open());
      const DeviceLimits& limits = device_->limits();
      ZINC_TRY(compiled, nvrtc.compile(program.source(), simt::host::simt_sources(),
                                       architecture_name(limits.major, limits.minor)));
      return std::move(compiled.cubin);
    });
    if (!opened.ok()) GTEST_SKIP() << "no supported GPU: " << opened.error().message;
    device_ = std::move(opened.value());
    if (!simt::host::runs_gemm_small(device_->limits(), 2)) GTEST_SKIP() << "this GPU does not run gemm_small";
  }

  template <class T>
  T* upload(const std::vector<T>& values) {
    buffers_.push_back(std::move(device_->allocate(std::max<size_t>(1, values.size() * sizeof(T)), "test").value()));
    EXPECT_TRUE(device_->write(buffers_.back(), 0, std::as_bytes(std::span(values))).ok());
    return buffers_.back().template device_ptr<T>();
  }
  Floats download(size_t buffer, size_t n) {
    Floats values(n);
    EXPECT_TRUE(device_->read(buffers_[buffer], 0, std::as_writable_bytes(std::span(values))).ok());
    return values;
  }
  float* random_floats(size_t n) {
    std::normal_distribution<float> normal;
    Floats values(n);
    for (float& x : values) x = normal(random_);
    return upload(values);
  }
  // Blocks of random bytes whose elements are finite and of moderate size.
  void fill_randomly(const Format& format, std::span<std::byte> blocks) {
    Floats values(static_cast<size_t>(format.block_elems));
    const auto is_moderate = [](float x) { return std::abs(x) < 1e6f; };
    for (size_t at = 0; at < blocks.size(); at += static_cast<size_t>(format.block_bytes)) {
      const std::span<std::byte> block = blocks.subspan(at, static_cast<size_t>(format.block_bytes));
      do {
        for (std::byte& b : block) b = static_cast<std::byte>(random_());
        format.dequantize(block, values);
      } while (!std::ranges::all_of(values, is_moderate));
    }
  }
  // A matrix of random weights for each expert.
  simt::Matrix random_matrix(int n_out, int n_in, int n_experts) {
    const gpu::PanelFormat& panel = *GetParam();
    const Format& format = *find_format(panel.name);
    const gpu::PanelLayout layout = gpu::panel_layout(panel, n_out, n_in, /*pads_last_segment=*/false);
    std::vector<std::byte> bytes(static_cast<size_t>(layout.matrix_bytes * n_experts));
    for (int row = 0; row < n_out * n_experts; ++row) {
      std::vector<std::byte> blocks(row_bytes(format, static_cast<size_t>(n_in)));
      fill_randomly(format, blocks);
      std::byte* to = bytes.data() + row / n_out * layout.matrix_bytes + row % n_out / 32 * layout.panel_bytes;
      for (int s = 0; s < layout.n_segments; ++s) {
        const int n_elems = std::min(n_in - s * simt::kSegmentElems, int{simt::kSegmentElems});
        panel.pack(blocks.data() + row_bytes(format, static_cast<size_t>(s * simt::kSegmentElems)), n_elems,
                   to + s * panel.segment_bytes(), row % n_out % 32);
      }
    }
    return {.bytes = reinterpret_cast<const unsigned char*>(upload(bytes)),
            .panel_bytes = layout.panel_bytes,
            .matrix_bytes = layout.matrix_bytes,
            .n_in = n_in,
            .n_out = n_out,
            .n_segments = layout.n_segments,
            .n_last_groups = layout.n_last_groups};
  }

  template <class P>
  void launch(const KernelProgram& program, const char* kernel, const P& params, std::array<unsigned, 3> grid,
              unsigned threads, int shared_bytes) {
    simt::host::KernelCall call{.program = program, .kernel = kernel, .launch = simt::host::Launch::of(params)};
    call.launch.grid = grid;
    call.launch.threads = threads;
    call.launch.shared_bytes = static_cast<unsigned>(shared_bytes);
    const auto prepared = device_->prepare({&call, 1});
    ASSERT_TRUE(prepared.ok()) << prepared.error().message;
    const Status run = device_->run(prepared.value()[0]);
    ASSERT_TRUE(run.ok()) << run.error().message;
  }
  simt::Q8Activation quantize(const float* x, int n_rows, int n_in, bool is_in_mma_order) {
    const size_t n_segments = static_cast<size_t>(ceil_div(n_in, simt::kSegmentElems) * n_rows);
    const int stride = static_cast<int>(ceil_div(n_in, simt::kSegmentElems)) * simt::kSegmentElems;
    const size_t n_image = static_cast<size_t>(simt::image_bytes(stride, kImageRows));
    const bool has_image = is_in_mma_order && GetParam()->q8_block == simt::kSegmentElems;
    const simt::QuantizeParams params{
        .x = x,
        .out = {.q = upload(std::vector<signed char>(n_segments * simt::kSegmentElems)),
                .scale = upload(Floats(n_segments * simt::kSegmentGroups)),
                .sum = upload(std::vector<int>(n_segments * simt::kSegmentGroups)),
                .wgmma_aux = nullptr,
                .stride = stride,
                .is_in_mma_order = is_in_mma_order ? 1 : 0,
                .image = has_image ? upload(std::vector<unsigned char>(n_image)) : nullptr,
                .image_rows = kImageRows},
        .n_rows = upload(std::vector<int>{n_rows}),
        .vectors_per_row = 1,
        .width = n_in,
        .q8_block = GetParam()->q8_block};
    launch({"row_ops", ""}, "quantize_rows", params, {static_cast<unsigned>(n_segments), 1, 1}, simt::kThreads, 0);
    return params.out;
  }
  // One row at a time.
  void run_linear(simt::LinearParams params, int n_rows) {
    constexpr int kSharedBytes = 48 << 10;
    params.warps_per_panel = 1;
    unsigned n_blocks = 0;
    for (int part = 0; part < params.n_parts; ++part) {
      n_blocks += static_cast<unsigned>(ceil_div(params.parts[part].n_out, simt::kPanelRows * simt::kWarps));
    }
    launch({"linear", std::string(GetParam()->name)}, "linear_1", params, {n_blocks, static_cast<unsigned>(n_rows), 1},
           simt::kThreads, kSharedBytes);
  }
  void run_gemm_small(const simt::LinearParams& params, int n_columns, unsigned n_blocks, int n_column_tiles = 1) {
    const int bytes = GetParam()->segment_bytes();
    const simt::GemmSmallShape shape = simt::host::gemm_small_shape(n_columns, params.expert_ids != nullptr, bytes,
                                                                    device_->limits().has_bulk_copies());
    launch({"gemm_small", std::string(GetParam()->name), simt::host::shape_definition("GemmSmallShape", shape)},
           "gemm_small", params, {n_blocks, static_cast<unsigned>(n_column_tiles), 1},
           static_cast<unsigned>(32 * shape.n_warps), simt::gemm_small_smem(shape, bytes).n_bytes);
  }
  void run_gemm_small_wgmma(const simt::LinearParams& params, const simt::GemmSmallWgmmaShape& shape,
                            unsigned n_blocks) {
    const int bytes = GetParam()->segment_bytes();
    launch(
        {"gemm_small_wgmma", std::string(GetParam()->name), simt::host::shape_definition("GemmSmallWgmmaShape", shape)},
        "gemm_small_wgmma", params, {n_blocks, 1, 1}, static_cast<unsigned>(simt::gemm_small_wgmma_threads(shape)),
        simt::gemm_small_wgmma_smem_bytes(shape, bytes));
  }
  // n_in with a last segment that is not whole, if the format has such.
  static int ragged(int n_segments) {
    return n_segments * simt::kSegmentElems - (GetParam()->q8_block == simt::kGroupElems ? 5 * simt::kGroupElems : 0);
  }

  std::mt19937 random_{7};
  std::unique_ptr<Device> device_;
  std::vector<Buffer> buffers_;
};

class GemmSmallWgmmaTest : public GemmSmallTest {};  // formats with integer scales
class GemmSmallOrderTest : public GemmSmallTest {};  // one format of each kind of scales

// Two matrices, with bias and residual; more panels than a block has accumulators; more segments than teams, or fewer.
TEST_P(GemmSmallTest, of_any_number_of_columns_is_bit_identical_to_linear) {
  constexpr int kOut[2] = {9 * 32 + 5, 40};
  for (const int n_segments : {3, 9}) {
    const int n_in = ragged(n_segments);
    const float* x = random_floats(static_cast<size_t>(kRows * n_in));
    simt::LinearParams params{};
    params.n_parts = 2;
    params.act = simt::kNoAct;
    params.vectors_per_row = 1;
    for (int part : {0, 1}) params.parts[part] = random_matrix(kOut[part], n_in, 1);
    params.biases[0] = random_floats(static_cast<size_t>(kOut[0]));
    params.residual = random_floats(static_cast<size_t>(kRows * kOut[0]));
    params.x = x;
    params.n_rows = upload(std::vector<int>{kRows});
    params.q8 = quantize(x, kRows, n_in, false);
    const auto n_outputs = [&](int part) { return static_cast<size_t>(kRows * kOut[part]); };
    const auto make_outputs = [&] {
      for (int part : {0, 1}) params.outs[part] = upload(Floats(n_outputs(part), -1));
      return buffers_.size() - 2;
    };
    const size_t expected = make_outputs();
    run_linear(params, kRows);
    params.q8 = quantize(x, kRows, n_in, true);
    for (const int n_columns : {2, 5, 8, 9, 17, 33, 64}) {
      if (n_segments == 9 && n_columns % 2 == 0 && n_columns < 64) continue;  // saves time
      params.n_rows = upload(std::vector<int>{n_columns});
      const size_t got = make_outputs();
      run_gemm_small(params, n_columns, 1);
      for (size_t part : {0u, 1u}) {
        const Floats from_linear = download(expected + part, n_outputs(static_cast<int>(part)));
        Floats all = download(got + part, n_outputs(static_cast<int>(part)));
        const auto end = static_cast<std::ptrdiff_t>(n_columns * kOut[part]);
        const auto mismatch = std::mismatch(all.begin(), all.begin() + end, from_linear.begin());
        EXPECT_EQ(mismatch.first - all.begin(), end) << n_columns << " columns, part " << part;
        EXPECT_TRUE(std::all_of(all.begin() + end, all.end(), [](float v) { return v == -1; })) << "other rows";
      }
    }
  }
}

// The rows of a step need not be the class's: columns of the second tile are only partly there, or not at all.
TEST_P(GemmSmallTest, a_tile_without_columns_writes_nothing) {
  const int n_in = ragged(2);
  const float* x = random_floats(static_cast<size_t>(kRows * n_in));
  simt::LinearParams params{};
  params.n_parts = 1;
  params.act = simt::kNoAct;
  params.vectors_per_row = 1;
  params.parts[0] = random_matrix(33, n_in, 1);
  params.q8 = quantize(x, kRows, n_in, false);
  params.n_rows = upload(std::vector<int>{kRows});
  params.outs[0] = upload(Floats(kRows * 33, -1));
  const size_t expected = buffers_.size() - 1;
  run_linear(params, kRows);
  params.q8 = quantize(x, kRows, n_in, true);
  for (const int n_rows : {0, 7, 11}) {
    params.n_rows = upload(std::vector<int>{n_rows});
    params.outs[0] = upload(Floats(kRows * 33, -1));
    run_gemm_small(params, 8, 2, 3);
    Floats from_linear = download(expected, kRows * 33);
    std::fill(from_linear.begin() + n_rows * 33, from_linear.end(), -1.0f);
    EXPECT_EQ(download(buffers_.size() - 1, kRows * 33), from_linear) << n_rows;
  }
}

// Two matrices, with bias and residual, and rows that do not fill a tile; several tiles of rows and columns per block,
// and more segments than stages.
TEST_P(GemmSmallWgmmaTest, is_bit_identical_to_linear) {
  if (!device_->limits().has_wgmma()) GTEST_SKIP() << "this GPU has no wgmma";
  constexpr int kOut[2] = {4 * 32 + 5, 40}, kSegments = 5, kIn = kSegments * simt::kSegmentElems;
  const float* x = random_floats(static_cast<size_t>(kRows * kIn));
  simt::LinearParams params{};
  params.n_parts = 2;
  params.act = simt::kNoAct;
  params.vectors_per_row = 1;
  for (int part : {0, 1}) params.parts[part] = random_matrix(kOut[part], kIn, 1);
  params.biases[0] = random_floats(static_cast<size_t>(kOut[0]));
  params.residual = random_floats(static_cast<size_t>(kRows * kOut[0]));
  params.x = x;
  params.n_rows = upload(std::vector<int>{kRows});
  params.q8 = quantize(x, kRows, kIn, false);
  const auto make_outputs = [&] {
    for (int part : {0, 1}) params.outs[part] = upload(Floats(static_cast<size_t>(kRows * kOut[part]), -1));
    return buffers_.size() - 2;
  };
  const size_t expected = make_outputs();
  run_linear(params, kRows);
  params.q8 = quantize(x, kRows, kIn, true);
  struct Case {
    simt::GemmSmallWgmmaShape shape;
    int n_rows;
    unsigned n_blocks;
  };
  for (const Case& c : {Case{{16, 1, 3, 4}, 64, 2}, Case{{32, 1, 3, 7}, 33, 1}, Case{{64, 1, 3, 3}, 57, 3},
                        Case{{32, 2, 1, 3}, 64, 2}, Case{{16, 1, 1, 2}, 9, 1}}) {
    params.n_rows = upload(std::vector<int>{c.n_rows});
    const size_t got = make_outputs();
    run_gemm_small_wgmma(params, c.shape, c.n_blocks);
    for (size_t part : {0u, 1u}) {
      Floats from_linear = download(expected + part, static_cast<size_t>(kRows * kOut[part]));
      std::fill(from_linear.begin() + c.n_rows * kOut[part], from_linear.end(), -1.0f);
      EXPECT_EQ(download(got + part, static_cast<size_t>(kRows * kOut[part])), from_linear)
          << c.shape.n_columns << " columns, " << c.n_rows << " rows, part " << part;
    }
  }
}

// As larger steps have them.
TEST_P(GemmSmallOrderTest, reads_activations_in_natural_order) {
  constexpr int kOut = 70;
  const int n_in = ragged(3);
  const float* x = random_floats(static_cast<size_t>(kRows * n_in));
  simt::LinearParams params{};
  params.n_parts = 1;
  params.act = simt::kNoAct;
  params.vectors_per_row = 1;
  params.parts[0] = random_matrix(kOut, n_in, 1);
  params.n_rows = upload(std::vector<int>{kRows});
  params.q8 = quantize(x, kRows, n_in, false);
  for (int i : {0, 1}) {
    params.outs[0] = upload(Floats(kRows * kOut, -1));
    i == 0 ? run_linear(params, kRows) : run_gemm_small(params, 16, 1, 4);
  }
  EXPECT_EQ(download(buffers_.size() - 2, kRows * kOut), download(buffers_.size() - 1, kRows * kOut));
}

// Pairs of one expert in tiles, most of them not full; gate and up in one launch.
TEST_P(GemmSmallTest, of_experts_is_bit_identical_to_linear) {
  constexpr int kTokens = 19, kPairs = kTokens * kUsed, kOut = 40, kColumns = 8;
  const int n_in = ragged(3);
  const float* x = random_floats(static_cast<size_t>(kTokens * n_in));
  std::vector<int> ids, order(kPairs), tiles;
  for (int t = 0; t < kTokens; ++t) {  // expert 1 has most tokens
    ids.push_back(t % 7 == 0 ? 0 : 1);
    ids.push_back(2);
  }
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](int pair) { return ids[static_cast<size_t>(pair)]; });
  for (int e = 0, first = 0; e < kExperts; ++e) {
    const int n = static_cast<int>(std::ranges::count(ids, e));
    for (int k = 0; k < n; k += kColumns) tiles.insert(tiles.end(), {e, first + k, std::min(kColumns, n - k)});
    first += n;
  }
  simt::LinearParams params{};
  params.n_parts = 2;
  params.act = simt::kNoAct;
  params.vectors_per_row = 1;
  params.n_experts_used = kUsed;
  params.expert_ids = upload(ids);
  params.tiles = {upload(order), upload(tiles), upload(std::vector<int>{static_cast<int>(tiles.size() / 3)})};
  params.n_rows = upload(std::vector<int>{kTokens});
  for (int part : {0, 1}) params.parts[part] = random_matrix(kOut, n_in, kExperts);
  params.biases[1] = random_floats(kExperts * kOut);
  params.expert_scales[0] = random_floats(kExperts);
  params.q8 = quantize(x, kTokens, n_in, false);
  const auto make_outputs = [&] {
    for (int part : {0, 1}) params.outs[part] = upload(Floats(kPairs * kOut, -1));
    return buffers_.size() - 2;
  };
  const size_t expected = make_outputs();
  run_linear(params, kPairs);
  params.q8 = quantize(x, kTokens, n_in, true);
  for (const unsigned n_blocks : {1u, 3u, 40u}) {
    const size_t got = make_outputs();
    run_gemm_small(params, kColumns, n_blocks);
    for (size_t part : {0u, 1u}) {
      EXPECT_EQ(download(got + part, kPairs * kOut), download(expected + part, kPairs * kOut)) << n_blocks;
    }
  }
}

std::vector<const gpu::PanelFormat*> quantized_formats(int min_q8_block = 1) {
  std::vector<const gpu::PanelFormat*> all;
  for (const gpu::PanelFormat* const* f = gpu::kPanelFormats; *f; ++f) {
    if ((*f)->q8_block >= min_q8_block) all.push_back(*f);
  }
  return all;
}
std::string format_name(const testing::TestParamInfo<const gpu::PanelFormat*>& info) {
  return std::string(info.param->name);
}
INSTANTIATE_TEST_SUITE_P(, GemmSmallTest, testing::ValuesIn(quantized_formats()), format_name);
INSTANTIATE_TEST_SUITE_P(, GemmSmallWgmmaTest, testing::ValuesIn(quantized_formats(simt::kSegmentElems)), format_name);
INSTANTIATE_TEST_SUITE_P(, GemmSmallOrderTest,
                         testing::Values(gpu::find_panel_format("q4_k"), gpu::find_panel_format("q8_0")), format_name);

// ---- geometry ----

TEST(GemmSmallShape, of_every_format_fits_the_shared_memory) {
  for (const gpu::PanelFormat* format : quantized_formats()) {
    for (const int n_columns : {1, 8, 9, 16, 17, 32, 33, 64, 200}) {
      const simt::GemmSmallShape shape = simt::host::gemm_small_shape(n_columns, false, format->segment_bytes(), true);
      EXPECT_GE(shape.n_columns, std::min(n_columns, 64)) << format->name;
      EXPECT_LT(shape.n_columns, std::max(9, 2 * n_columns)) << format->name;
      EXPECT_GE(simt::team_count(shape), n_columns <= 16 ? 8 : 2) << format->name << " " << n_columns;
      EXPECT_GE(shape.n_stages, 1) << format->name << " " << n_columns;
      EXPECT_LE(simt::gemm_small_smem(shape, format->segment_bytes()).n_bytes, simt::host::kGemmSmallSharedBytes);
      const simt::GemmSmallWgmmaShape wgmma =
          simt::host::gemm_small_wgmma_shape(64, n_columns, 132, format->segment_bytes());
      EXPECT_GE(wgmma.n_stages, 4) << format->name << " " << n_columns;
    }
  }
}

TEST(GemmSmallShape, wgmma_tiles_are_narrower_if_half_of_the_sms_had_none) {
  const auto columns = [](int64_t n_row_tiles, int n_columns) {
    return simt::host::gemm_small_wgmma_shape(n_row_tiles, n_columns, 132, 4608).n_columns;
  };
  EXPECT_EQ(columns(96, 64), 64);
  EXPECT_EQ(columns(64, 64), 32);
  EXPECT_EQ(columns(64, 128), 64);
  EXPECT_EQ(columns(64, 32), 16);
  EXPECT_EQ(columns(16, 64), 16);
  EXPECT_EQ(columns(384, 9), 16);
}

TEST(GemmSmallShape, an_experts_tile_has_the_pairs_of_an_average_expert) {
  EXPECT_EQ(simt::host::gemm_small_expert_columns(64 * 8, 256), 8);
  EXPECT_EQ(simt::host::gemm_small_expert_columns(64 * 4, 32), 16);
  EXPECT_EQ(simt::host::gemm_small_expert_columns(64 * 2, 8), 32);
  EXPECT_EQ(simt::host::gemm_small_expert_columns(64 * 2, 1), 64);
}

}  // namespace
}  // namespace zinc::cuda
