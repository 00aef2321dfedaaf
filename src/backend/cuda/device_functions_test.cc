// The device functions of the gemv kernels (simt/gemv_*.h), one by one: a test compiles a kernel of a few lines around
// a function and compares what it computes with plain C++. On a GPU, or on the emulated one; skipped without.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "backend/cuda/device.h"
#include "backend/gpu/panel_format.h"
#include "tensor/format.h"

namespace zinc::cuda {
namespace {

using Floats = std::vector<float>;
using Inputs = std::vector<Floats>;

Floats random_floats(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Floats out(n);
  for (float& x : out) x = normal(random);
  return out;
}

class DeviceFunctions : public testing::Test {
 protected:
  void SetUp() override {
    const Result<const DriverApi*> api = load_driver();
    if (!api.ok()) GTEST_SKIP() << "no GPU here: " << api.error().message;
    auto opened = Device::open(*api.value(), {}, [this](const KernelProgram& program) {
      return compile(program.shape);  // the whole source
    });
    if (!opened.ok()) GTEST_SKIP() << "no supported GPU: " << opened.error().message;
    device_ = std::move(opened.value());
    if (!device_->limits().has_bulk_copies()) GTEST_SKIP() << "this GPU has no bulk copies";
  }

  Result<std::vector<char>> compile(const std::string& source) const {
    const DeviceLimits& limits = device_->limits();
    ZINC_TRY(nvrtc, Nvrtc::open());
    std::vector<simt::host::SourceFile> files = simt::host::simt_sources();
    files.push_back({"test.cu", source.c_str()});
    ZINC_TRY(compiled, nvrtc.compile("#include \"test.cu\"\n", files, architecture_name(limits.major, limits.minor)));
    return std::move(compiled.cubin);
  }

  // A kernel: `definitions` (kShape and so on), a header of simt/, and the kernel's body. The body reads p.in, floats
  // or bytes, and writes p.out; `shared` is its shared memory.
  struct Kernel {
    std::string definitions, header, body;
    std::string format = "q4_k", functions = "";
    unsigned threads = 32, cluster = 1;
  };
  struct Params {
    const void* in[4];
    float* out;
  };
  Floats run(const Kernel& kernel, const std::vector<std::span<const std::byte>>& inputs, size_t n_out) {
    const std::string source = fmt::format(
        "#include \"backend/simt/format/{}.h\"\n#include \"backend/simt/params.h\"\n"
        "namespace zinc::simt {{ using Formats = List<WeightFormat>; using F = WeightFormat; {} }}\n"
        "#include \"backend/simt/{}\"\nnamespace zinc::simt {{\n"
        "struct TestParams {{ const void* in[4]; float* out; ZINC_DEVICE const float* floats(int i) const {{ return "
        "static_cast<const float*>(in[i]); }} }};\n{}\n"
        "extern \"C\" __global__ void test(__grid_constant__ const TestParams p) {{\n"
        "extern __shared__ float4 smem[];\nu8* shared = reinterpret_cast<u8*>(smem);\n{}\n}} }}\n",
        kernel.format, kernel.definitions, kernel.header, kernel.functions, kernel.body);
    Params params{};
    std::vector<Buffer> buffers;
    for (size_t i = 0; i < inputs.size(); ++i) {
      buffers.push_back(std::move(device_->allocate(inputs[i].size(), "input").value()));
      EXPECT_TRUE(device_->write(buffers.back(), 0, inputs[i]).ok());
      params.in[i] = buffers.back().device_ptr<const void>();
    }
    const Buffer out = std::move(device_->allocate(n_out * sizeof(float), "output").value());
    params.out = out.device_ptr<float>();
    const Result<Function> function = device_->kernel({"", "", source}, "test");
    EXPECT_TRUE(function.ok()) << function.error().message;
    if (!function.ok()) return Floats(n_out);
    simt::host::Launch launch = simt::host::Launch::of(params, kernel.cluster);
    launch.threads = kernel.threads;
    launch.cluster = kernel.cluster;
    launch.shared_bytes = 40 << 10;
    EXPECT_TRUE(device_->run({function.value(), launch}).ok());
    Floats values(n_out);
    EXPECT_TRUE(device_->read(out, 0, std::as_writable_bytes(std::span(values))).ok());
    return values;
  }
  Floats run(const Kernel& kernel, const Inputs& inputs, size_t n_out) {
    std::vector<std::span<const std::byte>> bytes;
    for (const Floats& input : inputs) bytes.push_back(std::as_bytes(std::span(input)));
    return run(kernel, bytes, n_out);
  }

  std::unique_ptr<Device> device_;
};

std::string shape(int n_in, int n_matrices, int is_normed, int n_warp_pairs, int cluster_size = 1) {
  const simt::GemvShape s{.n_in = n_in,
                          .n_matrices = n_matrices,
                          .n_input_rows = 1,
                          .is_normed = is_normed,
                          .n_parts = 1,
                          .expert_panels = 0,
                          .n_warp_pairs = n_warp_pairs,
                          .cluster_size = cluster_size,
                          .max_panels = 1,
                          .x_bytes = simt::segment_count(n_in) * simt::input_segment_bytes(true),
                          .partial_floats = 0,
                          .pipeline_bytes = 0,
                          .has_bulk_copies = 1,
                          .batch_floats = 4096,
                          .n_split_k_warps = 2};
  return simt::host::shape_definition("GemvShape", s) +
         simt::host::shape_definition("GemvPdl", simt::GemvPdl{}, "kPdl");
}

void expect_near(const Floats& values, const Floats& expected, float tolerance) {
  ASSERT_EQ(values.size(), expected.size());
  for (size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(values[i], expected[i], tolerance) << i;
}

// ---- tiles ----

TEST_F(DeviceFunctions, warp_pairs_of_a_cluster_visit_every_tile_once) {
  constexpr int kPanels = 3, kTiles = 2 * 5;  // five segments of gate and up: an odd number for each of two blocks
  const Kernel kernel{.definitions = shape(1200, 2, 0, 4, 2),
                      .header = "gemv_tiles.h",
                      .body = R"(
    const BlockTiles tiles;
    if (threadIdx.x >= kShape.n_warp_pairs) return;
    for (TileCursor c(tiles, threadIdx.x); c.panel < 3; c.advance(tiles, kShape.n_warp_pairs)) {
      const int i = c.panel * kPanelTiles + c.tile;
      p.out[i] += 1;
      p.out[3 * kPanelTiles + i] = 10 * k_segment(c.tile) + groups_of(k_segment(c.tile));
    })",
                      .cluster = 2};
  const Floats out = run(kernel, Inputs{}, 2 * kPanels * kTiles);
  for (size_t i = 0; i < kPanels * kTiles; ++i) {
    const size_t segment = i % kTiles / 2;
    EXPECT_EQ(out[i], 1) << i;
    EXPECT_EQ(out[kPanels * kTiles + i], static_cast<float>(10 * segment + (segment == 4 ? 6 : 8))) << i;
  }
}

TEST_F(DeviceFunctions, panel_ranges_of_all_shares_follow_each_other) {
  const Kernel kernel{.definitions = shape(256, 1, 0, 4), .header = "gemv_tiles.h", .body = R"(
    const PanelRange range({2, 3}, threadIdx.x);
    if (threadIdx.x < 5) p.out[2 * threadIdx.x] = range.begin;
    if (threadIdx.x < 5) p.out[2 * threadIdx.x + 1] = range.end;)"};
  EXPECT_EQ(run(kernel, Inputs{}, 10), (Floats{0, 3, 3, 6, 6, 9, 9, 11, 11, 13}));
}

// ---- routing ----

// The reference: the n best, the lower index first among equals; NaN is never selected.
struct Expected {
  Floats ids, weights;
};
Expected route(const Floats& logits, int n_used, int normalization, float scale) {
  std::vector<int> order;
  for (int e = 0; e < static_cast<int>(logits.size()); ++e) {
    if (!std::isnan(logits[static_cast<size_t>(e)])) order.push_back(e);
  }
  const auto logit = [&](int e) { return double{logits[static_cast<size_t>(e)]}; };
  std::ranges::stable_sort(order, [&](int a, int b) { return logit(a) > logit(b); });
  double all = 0, selected = 0;
  for (const int e : order) all += std::exp(logit(e));
  for (int u = 0; u < n_used; ++u) selected += std::exp(logit(order[static_cast<size_t>(u)]));
  Expected expected;
  for (int u = 0; u < n_used; ++u) {
    const int e = order[static_cast<size_t>(u)];
    expected.ids.push_back(static_cast<float>(e));
    const double total = normalization == simt::kSoftmaxOverAll ? all : selected;
    expected.weights.push_back(static_cast<float>(std::exp(logit(e)) / total * scale));
  }
  return expected;
}

TEST_F(DeviceFunctions, top_k_router_selects_the_best_experts_and_their_weights) {
  constexpr int kExperts = 48, kUsed = 5;
  Floats partial = random_floats(3 * kExperts, 1), bias = random_floats(kExperts, 2);
  for (const size_t e : {7u, 31u, 40u}) {  // equal, and the best
    for (size_t s = 0; s < 3; ++s) partial[s * kExperts + e] = 1.5f;
    bias[e] = 1;
  }
  Floats logits(kExperts);
  for (size_t e = 0; e < kExperts; ++e) {
    logits[e] = partial[e] + partial[kExperts + e] + partial[2 * kExperts + e] + bias[e];
  }
  for (const int normalization : {simt::kSoftmaxOverAll, simt::kSoftmaxOverAllNormalized, simt::kSoftmaxOfSelected}) {
    const Kernel kernel{.definitions = "",
                        .header = "gemv_routing.h",
                        .body = fmt::format(R"(
      __shared__ RoutedExperts routed;
      TopKRouter<48, 5, {}, 3>::select({{p.floats(0), p.floats(1), 2.5f}}, routed);
      __syncthreads();
      if (threadIdx.x < 5) p.out[threadIdx.x] = routed.ids[threadIdx.x];
      if (threadIdx.x < 5) p.out[5 + threadIdx.x] = routed.weights[threadIdx.x];)",
                                            normalization),
                        .threads = 128};
    const Floats out = run(kernel, Inputs{partial, bias}, 2 * kUsed);
    const Expected expected = route(logits, kUsed, normalization, 2.5f);
    EXPECT_EQ(Floats(out.begin(), out.begin() + kUsed), expected.ids);
    expect_near(Floats(out.begin() + kUsed, out.end()), expected.weights, 1e-6f);
  }
}

TEST_F(DeviceFunctions, top_k_router_does_not_select_nan) {
  Floats logits = random_floats(32, 3);
  *std::ranges::max_element(logits) = NAN;
  const Kernel kernel{.definitions = "",
                      .header = "gemv_routing.h",
                      .body = R"(
    __shared__ RoutedExperts routed;
    TopKRouter<32, 4, 2, 1>::select({p.floats(0), nullptr, 1}, routed);
    __syncthreads();
    if (threadIdx.x < 4) p.out[threadIdx.x] = routed.ids[threadIdx.x];)",
                      .threads = 64};
  EXPECT_EQ(run(kernel, Inputs{logits}, 4), route(logits, 4, simt::kSoftmaxOfSelected, 1).ids);
}

// ---- epilogues ----

// Three segments of 32 outputs; a GLU's gate and up alternate.
TEST_F(DeviceFunctions, epilogues_add_segments_in_order_then_scale_bias_activation_and_residual) {
  const Floats partial = random_floats(6 * 32, 4), vectors = random_floats(4 * 3 * 32, 5);
  const Kernel kernel{.definitions = shape(768, 1, 0, 4),
                      .header = "gemv_epilogue.h",
                      .body = R"(
    const float *bias = p.floats(1), *up_bias = bias + 96, *scale = bias + 192;
    const DenseMatrix dense{nullptr, bias}, bare{nullptr, nullptr}, up{nullptr, up_bias};
    const ExpertMatrix of_experts{nullptr, bias, scale}, up_of_experts{nullptr, up_bias, scale + 32};
    store(p, 0, PlainEpilogue{}, PlainPart<DenseMatrix>{dense, nullptr, 32, 1});
    store(p, 1, PlainEpilogue{}, PlainPart<DenseMatrix>{bare, nullptr, 32, 1});
    store(p, 2, ResidualEpilogue{}, ResidualPart<DenseMatrix>{dense, nullptr, 32, 1, up_bias});
    store(p, 3, PlainEpilogue{}, PlainPart<ExpertMatrix>{of_experts, nullptr, 32, 1});
    store(p, 4, GluEpilogue<kSilu>{}, GluPart<DenseMatrix>{dense, nullptr, 32, 1, up});
    store(p, 5, GluEpilogue<kSwigluOai>{}, GluPart<ExpertMatrix>{of_experts, nullptr, 32, 1, up_of_experts});)",
                      .functions = R"(
    template <class Epilogue, class Part>
    ZINC_DEVICE void store(const TestParams& p, int i, Epilogue epilogue, const Part& part) {
      const int o = threadIdx.x, expert = 2;
      epilogue.load(part, expert, o);
      p.out[32 * i + o] = epilogue.value(part, expert, p.floats(0) + o);
    })"};
  const Floats out = run(kernel, Inputs{partial, vectors}, 6 * 32);
  const auto silu = [](float x) { return x / (1 + std::exp(-x)); };
  const auto swiglu = [](float gate, float up) {
    const float g = std::min(gate, 7.0f);
    return g / (1 + std::exp(-1.702f * g)) * (std::clamp(up, -7.0f, 7.0f) + 1);
  };
  for (size_t o = 0; o < 32; ++o) {
    const auto sum = [&](size_t begin, size_t step) {
      return partial[begin * 32 + o] + partial[(begin + step) * 32 + o] + partial[(begin + 2 * step) * 32 + o];
    };
    const float bias = vectors[o], up_bias = vectors[96 + o], scale = vectors[194], up_scale = vectors[226];
    const float expert_bias = vectors[64 + o], expert_up_bias = vectors[160 + o];
    const auto value = [&](size_t i) { return out[32 * i + o]; };
    EXPECT_EQ(value(0), sum(0, 1) + bias);
    EXPECT_EQ(value(1), sum(0, 1));
    EXPECT_EQ(value(2), up_bias + (sum(0, 1) + bias));
    EXPECT_EQ(value(3), sum(0, 1) * scale + expert_bias);
    EXPECT_NEAR(value(4), silu(sum(0, 2) + bias) * (sum(1, 2) + up_bias), 1e-5f);
    EXPECT_NEAR(value(5), swiglu(sum(0, 2) * scale + expert_bias, sum(1, 2) * up_scale + expert_up_bias), 1e-4f);
  }
}

// ---- prologues ----

constexpr int kWidth = 592;  // the last segment is not full

constexpr int kCountFloats = 4;  // one is used: what follows is aligned

// The row as floats, then the number of threads that have run the overlapped work.
std::string prologue_body(const std::string& prologue, const std::string& input) {
  return fmt::format(R"(
    {} prologue;
    const decltype(prologue)::Input input = {};
    prologue.begin(input, shared);
    prologue.prepare<0, kInputSegments>(input, shared, shared + kSmem.x, 0, kInputSegments,
                                        [&] {{ atomicAdd(p.out + kShape.n_in, 1.0f); }});
    __syncthreads();
    for (int i = threadIdx.x; i < kShape.n_in; i += blockDim.x) p.out[i] = reinterpret_cast<float*>(shared + kSmem.x)[i];)",
                     prologue, input);
}
Floats rms_norm(const Floats& x, const Floats& weight, float eps) {
  const double sum = std::inner_product(x.begin(), x.end(), x.begin(), 0.0);
  const double factor = 1 / std::sqrt(sum / static_cast<double>(x.size()) + eps);
  Floats out(x.size());
  for (size_t i = 0; i < x.size(); ++i) out[i] = static_cast<float>(x[i] * factor * weight[i]);
  return out;
}

class DevicePrologues : public DeviceFunctions {
 protected:
  Floats prepare(bool is_normed, const std::string& prologue, const std::string& input, const Inputs& inputs,
                 size_t n_more = 0) {
    const Kernel kernel{.definitions = shape(kWidth, 1, is_normed ? 1 : 0, 4),
                        .header = "gemv_prologue.h",
                        .body = prologue_body(prologue, input),
                        .threads = 256};
    Floats out = run(kernel, inputs, kWidth + kCountFloats + n_more);
    EXPECT_EQ(out[kWidth], 256) << "threads that ran the overlapped work";
    out.erase(out.begin() + kWidth, out.begin() + kWidth + kCountFloats);
    return out;
  }
  const Floats x_ = random_floats(kWidth, 6), weight_ = random_floats(kWidth, 7), other_ = random_floats(kWidth, 8);
};

TEST_F(DevicePrologues, plain_row_is_copied) { EXPECT_EQ(prepare(false, "PlainPrologue", "{p.floats(0)}", {x_}), x_); }

TEST_F(DevicePrologues, norm_of_the_row) {
  expect_near(prepare(true, "NormPrologue", "{p.floats(0), p.floats(1), 0.5f}", {x_, weight_}),
              rms_norm(x_, weight_, 0.5f), 1e-5f);
  expect_near(prepare(true, "NormPrologue", "{p.floats(0), nullptr, 0.5f}", {x_}),
              rms_norm(x_, Floats(kWidth, 1), 0.5f), 1e-5f);
}

TEST_F(DevicePrologues, norm_and_residual_add_then_norm) {
  const Floats post = random_floats(kWidth, 9), scale = {0.75f};
  Floats both = weight_;
  both.insert(both.end(), post.begin(), post.end());
  const Floats out = prepare(true, "NormResidualPrologue",
                             "{{p.floats(0), p.floats(1), 1e-3f}, p.floats(1) + kShape.n_in, p.floats(2), p.floats(3), "
                             "p.out + kShape.n_in + 4, 0.25f}",
                             {x_, both, other_, scale}, kWidth);
  Floats sum = rms_norm(x_, post, 0.25f);
  for (size_t i = 0; i < kWidth; ++i) sum[i] = (other_[i] + sum[i]) * scale[0];
  expect_near(Floats(out.begin() + kWidth, out.end()), sum, 1e-5f);
  expect_near(Floats(out.begin(), out.begin() + kWidth), rms_norm(sum, weight_, 1e-3f), 2e-5f);
}

TEST_F(DevicePrologues, norm_of_each_head_and_its_gate) {
  constexpr size_t kHead = 16;
  const Floats weight = random_floats(kHead, 10);
  Floats expected;
  for (size_t begin = 0; begin < kWidth; begin += kHead) {
    const auto at = x_.begin() + static_cast<std::ptrdiff_t>(begin);
    const Floats head = rms_norm(Floats(at, at + kHead), weight, 1e-3f);
    for (size_t i = 0; i < kHead; ++i) expected.push_back(head[i] / (1 + std::exp(-other_[begin + i])));
  }
  expect_near(prepare(false, "GatedHeadsPrologue<16, kSigmoid>", "{{p.floats(0), p.floats(1), 1e-3f}, p.floats(2)}",
                      {x_, weight, other_}),
              expected, 1e-5f);
}

// Quantizing in the prologue and copying a row that was quantized before give the same segments. The weights' order of
// nibbles is undone by neither: both must store the same words.
TEST_F(DeviceFunctions, a_quantized_row_is_copied_as_the_prologue_would_quantize_it) {
  for (const char* format : {"q4_k", "q8_0", "mxfp4"}) {
    const Kernel kernel{.definitions = shape(512, 1, 0, 4),
                        .header = "gemv_prologue.h",
                        .body = R"(
      Q8Activation q8{reinterpret_cast<signed char*>(p.out + 1000), p.out + 1200, reinterpret_cast<int*>(p.out + 1300),
                      nullptr, 512};
      if (warp_id() < 2) {
        store_q8(quantize_vec8(load_vec8(p.floats(0), warp_id() * 256 + lane_id() * 8, 512), F::kQ8Block), q8, 0, warp_id(),
                 F::kQ8Block);
      }
      __syncthreads();
      u8* copied = shared + kSmem.x + 2 * sizeof(Q8Segment);
      PlainPrologue{}.prepare<F::kQ8Block, 2>(PlainInput{p.floats(0)}, shared, shared + kSmem.x, 0, 2, [] {});
      QuantizedPrologue{}.prepare<F::kQ8Block, 2>(QuantizedInput{q8}, shared, copied, 0, 2, [] {});
      __syncthreads();
      for (int i = threadIdx.x; i < 2 * sizeof(Q8Segment); i += blockDim.x) {
        p.out[i] = shared[kSmem.x + i] == copied[i] ? 1 : 0;
      })",
                        .format = format,
                        .threads = 256};
    const Floats out = run(kernel, Inputs{random_floats(512, 11)}, 1400);
    EXPECT_EQ(std::accumulate(out.begin(), out.begin() + 640, 0.0f), 640) << format;
  }
}

TEST_F(DeviceFunctions, quantized_activations_are_within_half_a_step) {
  const Floats x = random_floats(256, 12);
  for (const int block : {32, 256}) {
    const Kernel kernel{.definitions = "",
                        .header = "quantize.h",
                        .body = fmt::format(R"(
      const QuantizedVec8 r = quantize_vec8(load_vec8(p.floats(0), lane_id() * 8, 256), {});
      for (int i = 0; i < 8; ++i) {{
        p.out[lane_id() * 8 + i] = static_cast<signed char>((i < 4 ? r.words.x : r.words.y) >> 8 * (i % 4));
      }}
      p.out[256 + lane_id()] = r.scale;
      p.out[288 + lane_id()] = r.sum;)",
                                            block)};
    const Floats out = run(kernel, Inputs{x}, 320);
    for (size_t i = 0; i < 256; ++i) {
      const size_t first = i / static_cast<size_t>(block) * static_cast<size_t>(block);
      float largest = 0;
      for (size_t k = first; k < first + static_cast<size_t>(block); ++k) largest = std::max(largest, std::fabs(x[k]));
      const float scale = out[256 + i / 8];
      EXPECT_NEAR(scale, largest / 127, 1e-6f) << i;
      EXPECT_NEAR(out[i] * scale, x[i], 0.501f * scale) << i;
      if (i % 32 == 0) {
        const auto group = out.begin() + static_cast<std::ptrdiff_t>(i);
        EXPECT_EQ(out[288 + i / 8], std::accumulate(group, group + 32, 0.0f)) << i;
      }
    }
  }
}

// ---- dot products ----

class DeviceDot : public DeviceFunctions, public testing::WithParamInterface<const gpu::PanelFormat*> {
 protected:
  // A panel's segment of random weights, and as floats.
  void make_segment() {
    const gpu::PanelFormat& panel = *GetParam();
    const Format& format = *find_format(panel.name);
    std::mt19937 random(1);
    segment_.assign(static_cast<size_t>(panel.segment_bytes()), std::byte{0});
    for (int row = 0; row < simt::kPanelRows; ++row) {
      std::vector<std::byte> blocks(row_bytes(format, simt::kSegmentElems));
      for (std::byte& b : blocks) b = static_cast<std::byte>(random() % 0x40);  // keeps floats finite
      weights_.emplace_back(simt::kSegmentElems);
      format.dequantize(blocks, weights_.back());
      panel.pack(blocks.data(), simt::kSegmentElems, segment_.data(), row);
    }
  }
  std::vector<std::byte> segment_;
  std::vector<Floats> weights_;
};

// The gemv's two lanes per row, and linear.cu's one, compute the same bits; both are near the dot product.
TEST_P(DeviceDot, of_a_segment_is_that_of_linear_and_near_the_exact_one) {
  const bool is_float = GetParam()->q8_block == 0;
  make_segment();
  const Floats x = random_floats(simt::kSegmentElems, 13);
  for (const int n_groups : GetParam()->q8_block == simt::kSegmentElems ? std::vector{8} : std::vector{8, 3}) {
    const std::string quantized = fmt::format(R"(
      Q8Segment *own = reinterpret_cast<Q8Segment*>(shared + kSmem.x), *plain = own + 1;
      const QuantizedVec8 r = quantize_vec8(load_vec8(p.floats(1), lane_id() * 8, 256), F::kQ8Block);
      SharedRow<F::kQ8Block>::write(load_vec8(p.floats(1), lane_id() * 8, 256), 0, shared + kSmem.x);
      reinterpret_cast<int2*>(plain->quants)[lane_id()] = r.words;
      if (lane_id() % 4 == 0) plain->scales[lane_id() / 4] = r.scale;
      if (lane_id() % 4 == 0) plain->sums[lane_id() / 4] = r.sum;
      __syncwarp();
      for (int row = lane_id() % 16; row < 32; row += 16) {{
        const float value = HalfSegment<F>(segment, row).dot(*own, {0});
        if (lane_half() != 0) p.out[row] = value;
      }}
      LoadedSegment<F> loaded;
      loaded.load(segment, lane_id(), {0});
      float value[1];
      dot_q8<F, 1>(loaded, plain, {0}, value);
      p.out[32 + lane_id()] = value[0];)",
                                              n_groups);
    const std::string floats = fmt::format(R"(
      p.out[lane_id()] = dot_float_segment<F>(segment, lane_id(), p.floats(1), {0});
      float sum = 0, w[32];
      for (int g = 0; g < {0}; ++g) {{
        decode_group<F>(segment, lane_id(), g, w);
        for (int e = 0; e < 32; ++e) sum = fmaf(w[e], p.floats(1)[32 * g + e], sum);
      }}
      p.out[32 + lane_id()] = sum;)",
                                           n_groups);
    const Kernel kernel{
        .definitions = shape(256, 1, 0, 4),
        .header = "gemv_prologue.h",
        .body = "const u8* segment = static_cast<const u8*>(p.in[0]);" + (is_float ? floats : quantized),
        .format = std::string(GetParam()->name)};
    const Floats out = run(kernel, {std::span<const std::byte>(segment_), std::as_bytes(std::span(x))}, 64);
    for (size_t row = 0; row < simt::kPanelRows; ++row) {
      double sum = 0, magnitude = 0;
      for (size_t k = 0; k < static_cast<size_t>(n_groups) * 32; ++k) {
        sum += double{weights_[row][k]} * x[k];
        magnitude += std::fabs(double{weights_[row][k]});
      }
      EXPECT_EQ(out[row], out[32 + row]) << row;
      EXPECT_NEAR(out[row], sum, magnitude * (is_float ? 1e-6 : 4.0 / 127 / 2)) << row;  // half a step of x
      EXPECT_GT(magnitude, 0) << row;
    }
  }
}
std::vector<const gpu::PanelFormat*> panel_formats() {
  std::vector<const gpu::PanelFormat*> all;
  for (const gpu::PanelFormat* const* f = gpu::kPanelFormats; *f; ++f) all.push_back(*f);
  return all;
}
INSTANTIATE_TEST_SUITE_P(, DeviceDot, testing::ValuesIn(panel_formats()),
                         [](const auto& info) { return std::string(info.param->name); });

}  // namespace
}  // namespace zinc::cuda
