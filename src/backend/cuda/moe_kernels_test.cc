// Kernels around the experts' matmuls, bit for bit: gemm_floats.cu against plain C++, moe_route's ids and tiles, and
// moe_combine against the launches that it replaces. On a GPU, or on the emulated one; skipped without.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "backend/cuda/device.h"
#include "backend/gpu/panel_format.h"
#include "backend/simt/host/kernel_call.h"
#include "base/ceil_div.h"
#include "tensor/format.h"

namespace zinc::cuda {
namespace {

using Floats = std::vector<float>;
using Ints = std::vector<int>;

class MoeKernels : public testing::Test {
 protected:
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
  }

  template <class T>
  T* upload(const std::vector<T>& values) {
    buffers_.push_back(std::move(device_->allocate(std::max<size_t>(1, values.size() * sizeof(T)), "test").value()));
    EXPECT_TRUE(device_->write(buffers_.back(), 0, std::as_bytes(std::span(values))).ok());
    return buffers_.back().template device_ptr<T>();
  }
  template <class T>
  std::vector<T> download(const T* from, size_t n) {
    std::vector<T> values(n);
    const auto at = reinterpret_cast<uint64_t>(from);
    const auto buffer = std::ranges::find(buffers_, at, &Buffer::address);
    EXPECT_TRUE(device_->read(*buffer, 0, std::as_writable_bytes(std::span(values))).ok());
    return values;
  }
  Floats random_floats(size_t n) {
    std::normal_distribution<float> normal;
    Floats values(n);
    for (float& x : values) x = normal(random_);
    return values;
  }
  template <class P>
  void launch(const KernelProgram& program, const std::string& kernel, const P& params, std::array<unsigned, 3> grid,
              unsigned threads = simt::kThreads, unsigned cluster = 1, int shared_bytes = 0) {
    simt::host::KernelCall call{.program = program, .kernel = kernel, .launch = simt::host::Launch::of(params)};
    call.launch.grid = grid;
    call.launch.threads = threads;
    call.launch.cluster = cluster;
    call.launch.shared_bytes = static_cast<unsigned>(shared_bytes);
    const auto prepared = device_->prepare({&call, 1});
    ASSERT_TRUE(prepared.ok()) << prepared.error().message;
    const Status run = device_->run(prepared.value()[0]);
    ASSERT_TRUE(run.ok()) << run.error().message;
  }

  std::mt19937 random_{11};
  std::unique_ptr<Device> device_;
  std::vector<Buffer> buffers_;
};

// ---- gemm_floats ----

struct FloatMatrix {
  Floats values;  // [n_out, n_in]
  simt::Matrix on_device;
};

class MoeKernelsFloats : public MoeKernels {
 protected:
  FloatMatrix random_matrix(const gpu::PanelFormat& panel, int n_out, int n_in) {
    const Format& format = *find_format(panel.name);
    const gpu::PanelLayout layout = gpu::panel_layout(panel, n_out, n_in, /*pads_last_segment=*/false);
    std::vector<std::byte> bytes(static_cast<size_t>(layout.matrix_bytes));
    Floats values;
    for (int row = 0; row < n_out; ++row) {
      std::vector<std::byte> blocks(row_bytes(format, static_cast<size_t>(n_in)));
      Floats of_row(static_cast<size_t>(n_in));
      format.quantize(random_floats(of_row.size()), blocks);
      format.dequantize(blocks, of_row);
      values.insert(values.end(), of_row.begin(), of_row.end());
      for (int s = 0; s < layout.n_segments; ++s) {
        const int n_elems = std::min(n_in - s * simt::kSegmentElems, int{simt::kSegmentElems});
        panel.pack(blocks.data() + row_bytes(format, static_cast<size_t>(s * simt::kSegmentElems)), n_elems,
                   bytes.data() + row / 32 * layout.panel_bytes + s * panel.segment_bytes(), row % 32);
      }
    }
    return {std::move(values),
            {.bytes = reinterpret_cast<const unsigned char*>(upload(bytes)),
             .panel_bytes = layout.panel_bytes,
             .matrix_bytes = layout.matrix_bytes,
             .n_in = n_in,
             .n_out = n_out,
             .n_segments = layout.n_segments,
             .n_last_groups = layout.n_last_groups}};
  }
  // Sequential FMA over a segment, segments in order.
  static float dot(const float* weights, const float* x, int n_in) {
    float total = 0;
    for (int begin = 0; begin < n_in; begin += simt::kSegmentElems) {
      float sum = 0;
      for (int k = begin; k < std::min(n_in, begin + int{simt::kSegmentElems}); ++k)
        sum = std::fma(weights[k], x[k], sum);
      total += sum;
    }
    return total;
  }
};

TEST_F(MoeKernelsFloats, of_any_tile_and_split_adds_in_the_order_of_one_row) {
  struct Tile {
    int n_columns, n_panels;
    unsigned n_threads;
  };
  constexpr int kOut[2] = {70, 1}, kRows = 75;
  for (const char* name : {"f32", "f16", "bf16"}) {
    const gpu::PanelFormat& panel = *gpu::find_panel_format(name);
    for (const int n_in : {301, 5 * 256 + 68}) {
      const FloatMatrix matrices[2] = {random_matrix(panel, kOut[0], n_in), random_matrix(panel, kOut[1], n_in)};
      const Floats x = random_floats(static_cast<size_t>(kRows * n_in)), bias = random_floats(kOut[0]);
      simt::LinearParams params{};
      params.n_parts = 2;
      params.act = simt::kNoAct;
      params.vectors_per_row = 1;
      params.x = upload(x);
      params.biases[0] = upload(bias);
      for (size_t part : {0u, 1u}) params.parts[part] = matrices[part].on_device;
      for (const Tile& tile : {Tile{8, 1, 64}, {16, 1, 128}, {32, 1, 128}, {32, 2, 128}, {64, 2, 128}}) {
        for (const int n_splits : {1, 2, 4}) {
          if (n_splits > (device_->limits().has_clusters ? matrices[0].on_device.n_segments : 1)) continue;
          const int n_rows = tile.n_columns + 3;  // the second tile is not full, and a third has no columns
          params.n_splits = n_splits;
          params.n_rows = upload(Ints{n_rows});
          for (size_t part : {0u, 1u}) params.outs[part] = upload(Floats(static_cast<size_t>(kRows * kOut[part]), -1));
          const int rows = 32 * tile.n_panels, x_bytes = tile.n_columns * simt::kFloatStageElems * 4;
          const int own = params.parts[0].n_segments * static_cast<int>(ceil_div(tile.n_columns, n_splits)) * rows * 4;
          const int shared_bytes = 2 * (rows * 4 * panel.group_bytes + x_bytes) + (n_splits > 1 ? 16 + own : 0);
          if (shared_bytes > device_->limits().max_shared_bytes) continue;
          const int n_blocks = static_cast<int>(ceil_div(kOut[0], rows) + ceil_div(kOut[1], rows));
          launch({"gemm_floats", name}, fmt::format("gemm_floats_{}x{}", tile.n_columns, tile.n_panels), params,
                 {static_cast<unsigned>(n_blocks * n_splits), 3, 1}, tile.n_threads, static_cast<unsigned>(n_splits),
                 shared_bytes);
          for (size_t part : {0u, 1u}) {
            const auto n_out = static_cast<size_t>(kOut[part]);
            Floats expected(kRows * n_out, -1);
            for (size_t t = 0; t < static_cast<size_t>(n_rows); ++t) {
              for (size_t o = 0; o < n_out; ++o) {
                const float value = dot(matrices[part].values.data() + o * static_cast<size_t>(n_in),
                                        x.data() + t * static_cast<size_t>(n_in), n_in);
                expected[t * n_out + o] = part == 0 ? value + bias[o] : value;
              }
            }
            EXPECT_EQ(download(params.outs[part], kRows * n_out), expected)
                << name << ", " << n_in << " inputs, " << tile.n_columns << " columns, " << n_splits << " splits";
          }
        }
      }
    }
  }
}

// ---- routing ----

// More tokens than a block has warps, so the last block sorts; fewer; and none. Launched twice: the counter is reset.
TEST_F(MoeKernels, a_route_sorts_all_pairs_by_expert_into_tiles) {
  constexpr int kExperts = 300, kUsed = 3, kTile = 4, kMaxRows = 45, kMaxPairs = kMaxRows * kUsed;
  const simt::RouteShape shape{kExperts, kUsed, simt::kSoftmaxOfSelected};
  Floats logits = random_floats(kMaxRows * kExperts);
  for (size_t t = 0; t < kMaxRows; t += 2) logits[t * kExperts + 290] = 9;  // an expert of several tiles
  simt::RouteParams params{.logits = upload(logits),
                           .ids = upload(Ints(kMaxPairs, -1)),
                           .weights = upload(Floats(kMaxPairs)),
                           .n_rows = nullptr,
                           .routed_scaling_factor = 1,
                           .tile_tokens = kTile,
                           .tiles = {upload(Ints(kMaxPairs)), upload(Ints(3 * kMaxPairs)), upload(Ints{-1})},
                           .n_blocks_done = upload(Ints{0})};
  for (const int n_rows : {kMaxRows, 7, 1, 0, kMaxRows}) {
    params.n_rows = upload(Ints{n_rows});
    const int max_rows = n_rows <= 7 ? 8 : kMaxRows;
    launch({"moe", "", simt::host::shape_definition("RouteShape", shape)}, "moe_route", params,
           {static_cast<unsigned>(ceil_div(max_rows, simt::kWarps)), 1, 1});
    const auto n_pairs = static_cast<size_t>(n_rows * kUsed);
    const Ints ids = download(params.ids, kMaxPairs), order = download(params.tiles.order, kMaxPairs);
    const Ints tiles = download(params.tiles.tiles, 3 * kMaxPairs);
    for (size_t t = 0; t < static_cast<size_t>(n_rows); ++t) {
      Ints best(kExperts);
      std::iota(best.begin(), best.end(), 0);
      std::ranges::stable_sort(best, std::greater{},
                               [&](int e) { return logits[t * kExperts + static_cast<size_t>(e)]; });
      for (size_t u = 0; u < kUsed; ++u) EXPECT_EQ(ids[t * kUsed + u], best[u]) << t << ", " << u;
    }
    Ints expected_tiles;
    for (int e = 0, first = 0; e < kExperts; ++e) {
      const int n = static_cast<int>(std::count(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(n_pairs), e));
      for (int k = 0; k < n; k += kTile)
        expected_tiles.insert(expected_tiles.end(), {e, first + k, std::min(kTile, n - k)});
      first += n;
    }
    ASSERT_EQ(download(params.tiles.n_tiles, 1)[0] * 3, static_cast<int>(expected_tiles.size())) << n_rows;
    EXPECT_TRUE(std::equal(expected_tiles.begin(), expected_tiles.end(), tiles.begin())) << n_rows;
    for (size_t tile = 0; tile < expected_tiles.size(); tile += 3) {
      for (int i = 0; i < tiles[tile + 2]; ++i) {
        const int pair = order[static_cast<size_t>(tiles[tile + 1] + i)];
        EXPECT_EQ(ids[static_cast<size_t>(pair)], tiles[tile]) << pair;
      }
    }
    Ints sorted(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(n_pairs)), all(n_pairs);
    std::ranges::sort(sorted);
    std::iota(all.begin(), all.end(), 0);
    EXPECT_EQ(sorted, all) << n_rows;
  }
}

// ---- the sum of experts ----

struct Quantized {
  simt::Q8Activation on_device;
  size_t n_bytes, n_scales;
};

class MoeKernelsCombine : public MoeKernels, public testing::WithParamInterface<int> {
 protected:
  Quantized q8_of(int n_rows, int width, int block) {
    const auto n_segments = static_cast<size_t>(n_rows * ceil_div(width, simt::kSegmentElems));
    const size_t n_bytes = n_segments * simt::kSegmentElems, n_scales = n_bytes / static_cast<size_t>(block);
    return {{.q = upload(std::vector<signed char>(n_bytes)),
             .scale = upload(Floats(n_scales)),
             .sum = upload(Ints(n_bytes / simt::kGroupElems)),
             .wgmma_aux = nullptr,
             .stride = static_cast<int>(ceil_div(width, simt::kSegmentElems)) * simt::kSegmentElems,
             .is_in_mma_order = 1},
            n_bytes,
            n_scales};
  }
};

TEST_P(MoeKernelsCombine, with_shared_expert_residual_and_norm_is_bit_identical_to_separate_launches) {
  constexpr int kRows = 3, kUsed = 5, kBlock = 32;
  const int dim = GetParam();
  const auto n = static_cast<size_t>(kRows * dim);
  const auto n_segments = ceil_div(dim, simt::kSegmentElems);
  const int* n_rows = upload(Ints{kRows});
  const auto rows = [&] { return upload(Floats(n)); };
  simt::CombineParams params{};
  params.x = upload(random_floats(kUsed * n));
  params.weights = upload(random_floats(kRows * kUsed));
  params.n_rows = n_rows;
  params.n_experts_used = kUsed;
  params.dim = dim;
  const KernelProgram program{
      "combine", "", fmt::format("inline constexpr int kCombineSegments = {};", ceil_div(n_segments, simt::kWarps))};
  simt::CombineParams plain = params;
  plain.out = rows();
  launch(program, "moe_combine", plain, {kRows, 1, 1});

  params.shared = upload(random_floats(n));
  params.shared_gate = upload(random_floats(kRows));
  params.residual = upload(random_floats(n));
  params.out = rows();
  params.norm_weight = upload(random_floats(static_cast<size_t>(dim)));
  params.norm_eps = 1e-6f;
  params.is_normed = 1;
  params.normed = rows();
  const Quantized fused = q8_of(kRows, dim, kBlock);
  params.q8 = fused.on_device;
  params.q8_block = kBlock;
  launch(program, "moe_combine", params, {kRows, 1, 1});

  const KernelProgram row_ops{"row_ops", ""};
  const auto blocks = [](int64_t n_items, int per_block) {
    return std::array<unsigned, 3>{static_cast<unsigned>(ceil_div(n_items, per_block)), 1, 1};
  };
  const simt::GatedActParams act{.gate = params.shared_gate,
                                 .up = params.shared,
                                 .out = rows(),
                                 .q8 = {},
                                 .n_rows = n_rows,
                                 .vectors_per_row = 1,
                                 .width = dim,
                                 .q8_block = 0,
                                 .scalar_gate = 1,
                                 .act = simt::kSigmoid};
  launch(row_ops, "gated_act", act, blocks(kRows * n_segments, simt::kWarps));
  simt::ElementwiseParams add{.a = plain.out,
                              .b = act.out,
                              .out = rows(),
                              .n_rows = n_rows,
                              .width = dim,
                              .b_width = 0,
                              .op = simt::kAdd,
                              .factor = 0};
  launch(row_ops, "elementwise", add, blocks(kRows * dim, simt::kThreads));
  add.b = add.out;
  add.a = params.residual;
  add.out = rows();
  launch(row_ops, "elementwise", add, blocks(kRows * dim, simt::kThreads));
  const Quantized separate = q8_of(kRows, dim, kBlock);
  const simt::NormParams norm{.x = add.out,
                              .weight = params.norm_weight,
                              .out = rows(),
                              .q8 = separate.on_device,
                              .n_rows = n_rows,
                              .vectors_per_row = 1,
                              .width = dim,
                              .q8_block = kBlock,
                              .eps = params.norm_eps,
                              .is_l2 = 0};
  launch(row_ops, "norm_rows", norm, {kRows, 1, 1});
  EXPECT_EQ(download(params.out, n), download(add.out, n));
  const Floats normed = download(norm.out, n);
  EXPECT_EQ(download(params.normed, n), normed);
  EXPECT_EQ(download(fused.on_device.q, fused.n_bytes), download(separate.on_device.q, fused.n_bytes));
  EXPECT_EQ(download(fused.on_device.scale, fused.n_scales), download(separate.on_device.scale, fused.n_scales));
  // The kernel for rows of any length gives the same bits.
  simt::NormParams as_long = norm;
  as_long.out = rows();
  launch(row_ops, "norm_long_rows", as_long, {kRows, 1, 1});
  EXPECT_EQ(download(as_long.out, n), normed);
}
INSTANTIATE_TEST_SUITE_P(, MoeKernelsCombine, testing::Values(96, 301, 2880, 8192), testing::PrintToStringParamName());

}  // namespace
}  // namespace zinc::cuda
