// Compares every instruction set with the best one, bit for bit: all do the same operations in the same order.
#include "backend/cpu/kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "backend/cpu/weights.h"
#include "graph/cache_spec.h"
#include "tensor/format.h"
#include "tensor/half.h"

namespace zinc::cpu {
namespace {

constexpr size_t kTokens = 5;

std::vector<float> random_floats(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> out(n);
  for (float& x : out) x = normal(random);
  return out;
}

using Rows = std::vector<std::vector<std::byte>>;

// Any bytes whose elements are finite and so small that their sums are.
void fill_with_random_block(const Format& format, std::mt19937& random, std::span<std::byte> block) {
  std::vector<float> elems(format.block_elems);
  do {
    for (std::byte& b : block) b = static_cast<std::byte>(random());
    format.dequantize(block, elems);
  } while (!std::ranges::all_of(elems, [](float x) { return std::abs(x) < 1e10f; }));
}

Rows random_rows(const Format& format, size_t n_blocks) {
  std::mt19937 random(format.block_elems);
  Rows rows(kPanelRows, std::vector<std::byte>(format.block_bytes * n_blocks));
  for (auto& row : rows) {
    if (format.quantize) {
      const std::vector<float> x = random_floats(n_blocks * format.block_elems, static_cast<uint32_t>(random()));
      format.quantize(x, row);
    } else {
      for (size_t b = 0; b < n_blocks; ++b) {
        fill_with_random_block(format, random, std::span(row).subspan(b * format.block_bytes, format.block_bytes));
      }
    }
  }
  return rows;
}

// The 16 rows, packed.
std::vector<uint8_t> random_panel(const PanelFormat& panel, const Format& format, size_t n_blocks) {
  const Rows rows = random_rows(format, n_blocks);
  std::vector<uint8_t> out(panel.panel_block_bytes * n_blocks);
  for (size_t b = 0; b < n_blocks; ++b) {
    const std::byte* blocks[kPanelRows];
    for (size_t r = 0; r < kPanelRows; ++r) blocks[r] = rows[r].data() + b * format.block_bytes;
    panel.pack(blocks, out.data() + b * panel.panel_block_bytes);
  }
  return out;
}

struct Quantized {
  std::vector<float> f32, scale;
  std::vector<int8_t> q;
  std::vector<int16_t> sum16, sum32;
  TokenActivation activation() const { return {f32.data(), q.data(), scale.data(), sum16.data(), sum32.data()}; }
};

Quantized quantized(const Kernels& kernels, ActivationFormat format, size_t n, uint32_t seed) {
  Quantized c{.f32 = random_floats(n, seed), .scale = {}, .q = {}, .sum16 = {}, .sum32 = {}};
  c.scale.resize(n / 32 + 1);
  c.q.resize(n + 64);
  c.sum16.resize(n / 16 + 2);
  c.sum32.resize(n / 32 + 2);
  if (format != ActivationFormat::f32) {
    kernels.quantize(c.f32.data(), n, format, c.q.data(), c.scale.data(), c.sum16.data(), c.sum32.data());
  }
  return c;
}

// The 16 outputs of each token, computed `tile` tokens at a time.
std::vector<float> multiply(const Kernels& kernels, const PanelFormat& panel, const std::vector<uint8_t>& weights,
                            size_t n_blocks, size_t tile) {
  std::vector<Quantized> data;
  std::vector<TokenActivation> activations;
  for (size_t t = 0; t < kTokens; ++t) {
    data.push_back(quantized(kernels, panel.activation_format, n_blocks * panel.block_elems, static_cast<uint32_t>(t)));
  }
  for (const Quantized& d : data) activations.push_back(d.activation());
  std::vector<float> out(kTokens * kPanelRows);
  for (size_t t = 0; t < kTokens; t += tile) {
    const size_t n = std::min(tile, kTokens - t);
    float* rows[kMaxTileTokens];
    for (size_t j = 0; j < n; ++j) rows[j] = out.data() + (t + j) * kPanelRows;
    panel.kernels[n - 1](weights.data(), n_blocks, activations.data() + t, rows);
  }
  return out;
}

class CpuKernels : public testing::Test {
  void SetUp() override {
    if (supported_kernels().empty()) GTEST_SKIP() << "this processor lacks " << required_isa();
  }
};

TEST_F(CpuKernels, every_block_format_of_files_is_packed) {
  for (const Kernels* kernels : supported_kernels()) {
    for (const Format* const* f = kFormats; *f; ++f) {
      if ((*f)->block_elems == 1 || (*f)->gguf_id == kNoGgufType) continue;
      EXPECT_NE(find_panel_format(*kernels, (*f)->name), nullptr) << kernels->isa << " " << (*f)->name;
    }
  }
}

TEST_F(CpuKernels, every_instruction_set_and_tile_size_gives_the_same_matmul_results) {
  const std::vector<const Kernels*> supported = supported_kernels();
  for (const PanelFormat* const* f = supported[0]->panel_formats; *f; ++f) {
    const Format& format = *find_format((*f)->format);
    const size_t n_blocks = (*f)->block_elems == 1 ? 96 : 3;
    const std::vector<uint8_t> weights = random_panel(**f, format, n_blocks);
    const std::vector<float> expected = multiply(*supported[0], **f, weights, n_blocks, 1);
    for (const Kernels* kernels : supported) {
      size_t i = 0;
      while (kernels->panel_formats[i]->format != (*f)->format) ++i;
      const PanelFormat& other = *kernels->panel_formats[i];
      EXPECT_EQ(random_panel(other, format, n_blocks), weights) << kernels->isa << " packs " << format.name;
      for (size_t tile = 1; tile <= static_cast<size_t>(kernels->tile_tokens); ++tile) {
        if (!other.kernels[tile - 1]) continue;
        EXPECT_EQ(multiply(*kernels, other, weights, n_blocks, tile), expected)
            << kernels->isa << " " << format.name << " by " << tile;
      }
    }
  }
}

// Besides f32 sums, the kernels round only when they quantize activations: for given quants the dot products are exact.
TEST_F(CpuKernels, a_matmul_equals_the_dequantized_weights_times_the_quantized_activations) {
  constexpr size_t kBlocks = 3;
  const Kernels& kernels = *supported_kernels().front();
  for (const PanelFormat* const* f = kernels.panel_formats; *f; ++f) {
    const Format& format = *find_format((*f)->format);
    const size_t n = kBlocks * format.block_elems,
                 activation_block = (*f)->activation_format == ActivationFormat::q8_blocks_of_32 ? 32 : 256;
    const Rows rows = random_rows(format, kBlocks);
    const std::vector<float> got = multiply(kernels, **f, random_panel(**f, format, kBlocks), kBlocks, 1);
    for (size_t t = 0; t < kTokens; ++t) {
      const Quantized activation = quantized(kernels, (*f)->activation_format, n, static_cast<uint32_t>(t));
      for (size_t r = 0; r < kPanelRows; ++r) {
        std::vector<float> weights(n);
        format.dequantize(rows[r], weights);
        double sum = 0, magnitude = 0;
        for (size_t k = 0; k < n; ++k) {
          const double x = (*f)->activation_format == ActivationFormat::f32
                               ? double{activation.f32[k]}
                               : static_cast<double>(activation.q[k]) * activation.scale[k / activation_block];
          sum += weights[k] * x;
          magnitude += std::abs(weights[k] * x);
        }
        EXPECT_NEAR(got[t * kPanelRows + r], sum, 2e-6 * magnitude) << format.name << " row " << r << " token " << t;
      }
    }
  }
}

// Conversions of infinities and NaN to integers are undefined, and so are sums of what the processor makes of them.
TEST_F(CpuKernels, block_with_infinity_or_nan_has_a_scale_of_nan_and_zero_quants) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr size_t kElems = 768;
  for (const Kernels* kernels : supported_kernels()) {
    for (const ActivationFormat format : {ActivationFormat::q8_blocks_of_32, ActivationFormat::q8_blocks_of_256}) {
      const size_t block = format == ActivationFormat::q8_blocks_of_32 ? 32 : 256;
      const Quantized finite = quantized(*kernels, format, kElems, 1);
      for (const float bad : {kNan, -kNan, kInfinity, -kInfinity}) {
        for (const size_t at : {block, block + 1, 2 * block - 1}) {  // in the second block
          Quantized x = finite;
          x.f32[at] = bad;
          kernels->quantize(x.f32.data(), kElems, format, x.q.data(), x.scale.data(), x.sum16.data(), x.sum32.data());
          for (size_t b = 0; b < kElems / block; ++b) {
            EXPECT_EQ(std::isnan(x.scale[b]), b == 1) << kernels->isa << " " << bad << " at " << at;
          }
          for (size_t i = 0; i < kElems; ++i) ASSERT_EQ(x.q[i], i / block == 1 ? 0 : finite.q[i]) << i;
          for (size_t i = 0; i < kElems / 16; ++i) ASSERT_EQ(x.sum16[i], i * 16 / block == 1 ? 0 : finite.sum16[i]);
          for (size_t i = 0; i < kElems / 32; ++i) ASSERT_EQ(x.sum32[i], i * 32 / block == 1 ? 0 : finite.sum32[i]);
        }
      }
    }
  }
}

TEST_F(CpuKernels, products_with_infinity_or_nan_are_nan) {
  constexpr size_t kBlocks = 3;
  for (const Kernels* kernels : supported_kernels()) {
    for (const PanelFormat* const* f = kernels->panel_formats; *f; ++f) {
      if ((*f)->activation_format == ActivationFormat::f32) continue;
      const size_t n = kBlocks * (*f)->block_elems;
      const std::vector<uint8_t> weights = random_panel(**f, *find_format((*f)->format), kBlocks);
      Quantized x = quantized(*kernels, (*f)->activation_format, n, 1);
      x.f32[n / 2] = std::numeric_limits<float>::quiet_NaN();
      kernels->quantize(x.f32.data(), n, (*f)->activation_format, x.q.data(), x.scale.data(), x.sum16.data(),
                        x.sum32.data());
      std::vector<float> out(kPanelRows);
      float* row = out.data();
      const TokenActivation activation = x.activation();
      (*f)->kernels[0](weights.data(), kBlocks, &activation, &row);
      for (const float y : out) EXPECT_TRUE(std::isnan(y)) << kernels->isa << " " << find_format((*f)->format)->name;
    }
  }
}

// 127 divided by such a number is infinite.
TEST_F(CpuKernels, blocks_of_tiny_numbers_are_zeros) {
  for (const Kernels* kernels : supported_kernels()) {
    for (const float tiny : {1e-45f, 1e-40f, 1e-37f}) {
      Quantized x = quantized(*kernels, ActivationFormat::q8_blocks_of_32, 32, 1);
      for (size_t i = 0; i < 32; ++i) x.f32[i] = i % 2 == 0 ? tiny : 0;
      kernels->quantize(x.f32.data(), 32, ActivationFormat::q8_blocks_of_32, x.q.data(), x.scale.data(), x.sum16.data(),
                        x.sum32.data());
      EXPECT_EQ(x.scale[0], 0.0f) << kernels->isa << " " << tiny;
      for (size_t i = 0; i < 32; ++i) EXPECT_EQ(x.q[i], 0) << kernels->isa << " " << tiny;
    }
  }
}

TEST_F(CpuKernels, cached_key_with_infinity_or_nan_is_nan) {
  for (const Kernels* kernels : supported_kernels()) {
    const KvLayout* layout = kernels->kv_layout("q8_0");
    ASSERT_NE(layout, nullptr);
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      std::vector<float> key = random_floats(64, 1);
      key[3] = bad;  // in the first 32 dimensions
      std::vector<std::byte> page(layout->key_bytes(64));
      layout->write_key(key.data(), 64, 0, page.data());
      const auto* scales = reinterpret_cast<const uint16_t*>(page.data());
      EXPECT_TRUE(std::isnan(half_to_float(scales[0]))) << kernels->isa;
      EXPECT_TRUE(std::isfinite(half_to_float(scales[kPageTokens]))) << kernels->isa;
      const auto* quants = reinterpret_cast<const int8_t*>(page.data() + 2 * kPageTokens * sizeof(uint16_t));
      for (size_t d = 0; d < 32; ++d) EXPECT_EQ(quants[d * kPageTokens], 0) << kernels->isa;
    }
  }
}

TEST_F(CpuKernels, every_instruction_set_gives_the_same_row_op_results) {
  const std::vector<const Kernels*> supported = supported_kernels();
  for (const Kernels* kernels : supported) {
    for (const size_t n : {1u, 15u, 16u, 17u, 48u, 200u}) {
      const std::vector<float> x = random_floats(n, 1), y = random_floats(n, 2);
      std::vector<float> out(n), expected(n);
      const auto same = [&](const char* what) {
        EXPECT_EQ(out, expected) << kernels->isa << " " << what << " of " << n;
      };
      supported[0]->rms_norm(x.data(), y.data(), 1e-6f, n, expected.data());
      kernels->rms_norm(x.data(), y.data(), 1e-6f, n, out.data());
      same("rms_norm");
      for (Act act : {Act::silu, Act::gelu, Act::sigmoid, Act::swiglu_oai}) {
        supported[0]->gated_act(act, x.data(), y.data(), n, expected.data());
        kernels->gated_act(act, x.data(), y.data(), n, out.data());
        same("gated_act");
      }
    }
  }
}

}  // namespace
}  // namespace zinc::cpu
