// delta_layer.cu against the kernels of single ops, bit for bit. On a GPU, or on the emulated one; skipped without.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "backend/cuda/device.h"
#include "base/ceil_div.h"

namespace zinc::cuda {
namespace {

using Floats = std::vector<float>;
using Ints = std::vector<int>;

struct LayerShape {
  const char* kernel;
  int k_heads, v_heads, dim, n_taps, is_cyclic;
  int n_columns, q8_block;  // n_columns: of a block
  int key_dim() const { return k_heads * dim; }
  int value_dim() const { return v_heads * dim; }
  int n_channels() const { return 2 * key_dim() + value_dim(); }
  int conv_floats() const { return n_taps * n_channels(); }
  int slot_floats() const { return conv_floats() + value_dim() * dim; }
  friend void PrintTo(const LayerShape& s, std::ostream* out) { *out << s.kernel; }
};

struct SeqTokens {
  int slot, position, n_tokens;
  Ints row_slots = {};  // empty: the state after the last token is written to `slot`
};
// Single tokens, drafts, more tokens than are in shared memory at a time, a new sequence. No full chunk.
const std::vector<SeqTokens> kShort = {{2, 7, 1}, {0, 0, 3}, {3, 61, 19}, {1, 1, 1}, {4, 130, 3, {5, 4, 6}}};
// Three sequences with full chunks, among more than a warp's of others; the second has tokens before and after its own.
std::vector<SeqTokens> with_chunks() {
  std::vector<SeqTokens> seqs;
  for (int slot = 0; slot < 40; ++slot) {
    seqs.push_back({slot, 5 + slot, 1 + slot % 2});
    if (slot == 2) seqs.push_back({40, 0, 64});
    if (slot == 5) seqs.push_back({41, 61, 3 + 64 + 2});
    if (slot == 36) seqs.push_back({42, 128, 130});
  }
  return seqs;
}

class DeltaLayerTest : public testing::TestWithParam<LayerShape> {
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
    buffers_.push_back(std::move(device_->allocate(values.size() * sizeof(T), "test").value()));
    EXPECT_TRUE(device_->write(buffers_.back(), 0, std::as_bytes(std::span(values))).ok());
    return buffers_.back().template device_ptr<T>();
  }
  template <class T>
  std::vector<T> download(const T* from, int n) {
    std::vector<T> values(static_cast<size_t>(n));
    const auto buffer = std::ranges::find_if(buffers_, [&](const Buffer& b) { return b.device_ptr<T>() == from; });
    EXPECT_TRUE(device_->read(*buffer, 0, std::as_writable_bytes(std::span(values))).ok());
    return values;
  }
  float* random_floats(int n) {
    std::normal_distribution<float> normal;
    Floats values(static_cast<size_t>(n));
    for (float& x : values) x = normal(random_);
    return upload(values);
  }
  float* zeros(int n) { return upload(Floats(static_cast<size_t>(n))); }
  float* copy_of(const float* from, int n) { return upload(download(from, n)); }
  // Columns [begin, begin + n) of a matrix with n_tokens_ rows.
  float* columns(const Floats& matrix, int width, int begin, int n) {
    Floats out;
    for (auto row = matrix.begin(); row != matrix.end(); row += width)
      out.insert(out.end(), row + begin, row + begin + n);
    return upload(out);
  }

  template <class P>
  void launch(const char* program, const char* kernel, const P& params, int64_t x, int64_t y = 1, int64_t z = 1,
              unsigned shared_bytes = 0) {
    simt::host::KernelCall call{.program = {program, ""}, .kernel = kernel, .launch = simt::host::Launch::of(params)};
    call.launch.grid = {static_cast<unsigned>(x), static_cast<unsigned>(y), static_cast<unsigned>(z)};
    call.launch.shared_bytes = shared_bytes;
    const auto prepared = device_->prepare({&call, 1});
    ASSERT_TRUE(prepared.ok()) << prepared.error().message;
    const Status run = device_->run(prepared.value()[0]);
    ASSERT_TRUE(run.ok()) << run.error().message;
  }

  void make_step(const std::vector<SeqTokens>& seqs) {
    Ints positions, seq_of_token, seq_begin = {0}, slots, row_slots;
    for (const SeqTokens& s : seqs) {
      for (int i = 0; i < s.n_tokens; ++i) {
        positions.push_back(s.position + i);
        seq_of_token.push_back(static_cast<int>(slots.size()));
        row_slots.push_back(i + 1 < s.n_tokens ? -1 : s.slot);
      }
      std::ranges::copy(s.row_slots, row_slots.begin() + seq_begin.back());
      seq_begin.push_back(static_cast<int>(positions.size()));
      slots.push_back(s.slot);
    }
    n_tokens_ = seq_begin.back();
    n_seqs_ = static_cast<int>(slots.size());
    n_slots_ = std::max(std::ranges::max(slots), std::ranges::max(row_slots)) + 1;
    Ints counts(simt::kCounts);
    counts[simt::kTokens] = n_tokens_;
    counts[simt::kSeqs] = n_seqs_;
    max_seqs_ = n_seqs_ + 2;
    seq_begin.resize(slots.size() + 3);
    slots.resize(slots.size() + 2);
    step_.counts = upload(counts);
    step_.positions = upload(positions);
    step_.seq_of_token = upload(seq_of_token);
    step_.seq_begin = upload(seq_begin);
    step_.slots = upload(slots);
    step_.row_slots = upload(row_slots);
    step_.max_seqs = max_seqs_;
  }
  void make_inputs() {  // of the step's tokens
    const LayerShape& shape = GetParam();
    x_ = random_floats(n_tokens_ * shape.n_channels());
    conv_weight_ = random_floats(shape.n_channels() * shape.n_taps);
    alpha_ = random_floats(n_tokens_ * shape.v_heads);
    beta_ = random_floats(n_tokens_ * shape.v_heads);
    dt_bias_ = random_floats(shape.v_heads);
    a_ = upload(Floats(static_cast<size_t>(shape.v_heads), -0.3f));
    gate_ = random_floats(n_tokens_ * shape.value_dim());
    norm_weight_ = random_floats(shape.dim);
  }
  bool has_chunks() const { return n_tokens_ - n_seqs_ >= simt::kDeltaChunk; }
  simt::ConvParams conv_params(float* states) {
    const LayerShape& s = GetParam();
    return {.step = step_,
            .x = x_,
            .weight = conv_weight_,
            .out = zeros(n_tokens_ * s.n_channels()),
            .states = states,
            .slot_floats = s.slot_floats(),
            .n_channels = s.n_channels(),
            .n_taps = s.n_taps};
  }
  simt::DeltaParams delta_params(float* states) {
    const LayerShape& s = GetParam();
    simt::DeltaParams params{};
    params.step = step_;
    params.alpha = alpha_;
    params.beta = beta_;
    params.dt_bias = dt_bias_;
    params.a = a_;
    params.out = zeros(n_tokens_ * s.value_dim());
    params.states = states + s.conv_floats();
    params.slot_floats = s.slot_floats();
    params.k_heads = s.k_heads;
    params.v_heads = s.v_heads;
    params.k_dim = params.v_dim = s.dim;
    params.is_cyclic = s.is_cyclic;
    params.q_scale = 0.25f;
    params.leaves_chunked = has_chunks() ? 1 : 0;
    return params;
  }
  // n_seqs: sequences that are scanned at the same time.
  void run_chunks(simt::DeltaParams params, int n_seqs) {
    const int n_chunks = n_tokens_ / simt::kDeltaChunk;
    params.prepared = zeros(n_chunks * simt::kDeltaChunk * params.v_heads * (2 * params.k_dim + simt::kDeltaChunk + 1));
    launch("recurrent_chunks", "delta_prepare", params, n_chunks, params.v_heads, 1, kChunkBytes);
    launch("recurrent_chunks", "delta_chunks", params, ceil_div(params.v_dim, simt::kDeltaColumns), params.v_heads,
           n_seqs, kChunkBytes);
  }
  simt::Q8Activation q8_buffers() {
    const int stride = static_cast<int>(ceil_div(GetParam().value_dim(), simt::kSegmentElems)) * simt::kSegmentElems;
    const auto n = static_cast<size_t>(n_tokens_ * stride);
    return {.q = upload(std::vector<signed char>(n)),
            .scale = upload(Floats(n / simt::kGroupElems)),
            .sum = upload(Ints(n / simt::kGroupElems)),
            .wgmma_aux = nullptr,
            .stride = stride,
            .is_in_mma_order = 1};
  }

  struct LayerResult {
    Floats delta, states, out, scale;
    std::vector<signed char> q;
    Ints sum;
  };
  LayerResult results(const float* delta, const float* states, const float* out, const simt::Q8Activation& q8) {
    const int n_q = n_tokens_ * q8.stride, n_rows = n_tokens_ * GetParam().value_dim();
    return {.delta = download(delta, n_rows),
            .states = download(states, n_slots_ * GetParam().slot_floats()),
            .out = download(out, n_rows),
            .scale = download(q8.scale, n_q / simt::kGroupElems),
            .q = download(q8.q, n_q),
            .sum = download(q8.sum, n_q / simt::kGroupElems)};
  }

  float* norm(const float* x, const float* weight, int n_heads, bool is_l2) {
    const LayerShape& s = GetParam();
    simt::NormParams params{};
    params.x = x;
    params.weight = weight;
    params.out = zeros(n_tokens_ * n_heads * s.dim);
    params.n_rows = step_.counts + simt::kTokens;
    params.vectors_per_row = n_heads;
    params.width = s.dim;
    params.eps = kEps;
    params.is_l2 = is_l2 ? 1 : 0;
    launch("row_ops", "norm_heads", params, ceil_div(n_tokens_ * n_heads, simt::kWarps));
    return params.out;
  }
  LayerResult run_ops(float* states) {
    const LayerShape& s = GetParam();
    const simt::ConvParams conv = conv_params(states);
    launch("recurrent", "short_conv", conv, ceil_div(s.n_channels(), simt::kThreads), max_seqs_,
           ceil_div(n_tokens_, simt::kConvTokens));
    const Floats qkv = download(conv.out, n_tokens_ * s.n_channels());
    simt::DeltaParams delta = delta_params(states);
    delta.q = norm(columns(qkv, s.n_channels(), 0, s.key_dim()), nullptr, s.k_heads, true);
    delta.k = norm(columns(qkv, s.n_channels(), s.key_dim(), s.key_dim()), nullptr, s.k_heads, true);
    delta.v = columns(qkv, s.n_channels(), 2 * s.key_dim(), s.value_dim());
    launch("recurrent", s.dim <= 128 ? "delta_net_128" : "delta_net_256", delta, ceil_div(s.dim, 32), s.v_heads,
           max_seqs_);
    if (has_chunks()) run_chunks(delta, max_seqs_);
    simt::GatedActParams gate{};
    gate.gate = gate_;
    gate.up = norm(delta.out, norm_weight_, s.v_heads, false);
    gate.out = zeros(n_tokens_ * s.value_dim());
    gate.q8 = q8_buffers();
    gate.n_rows = step_.counts + simt::kTokens;
    gate.vectors_per_row = 1;
    gate.width = s.value_dim();
    gate.q8_block = s.q8_block;
    gate.act = simt::kSilu;
    launch("row_ops", "gated_act", gate,
           ceil_div(n_tokens_ * ceil_div(s.value_dim(), simt::kSegmentElems), simt::kWarps));
    return results(delta.out, states, gate.out, gate.q8);
  }
  LayerResult run_layer(float* states) {
    const LayerShape& s = GetParam();
    simt::DeltaLayerParams layer{.delta = delta_params(states),
                                 .conv = conv_params(states),
                                 .norm_eps = kEps,
                                 .n_seq_rows = 2,
                                 .q = nullptr,
                                 .k = nullptr,
                                 .v = nullptr};
    if (has_chunks()) {
      layer.delta.q = layer.q = zeros(n_tokens_ * s.key_dim());
      layer.delta.k = layer.k = zeros(n_tokens_ * s.key_dim());
      layer.delta.v = layer.v = zeros(n_tokens_ * s.value_dim());
    }
    const int64_t n_tiles = has_chunks() ? ceil_div(n_tokens_, simt::kConvTokens) : 0;
    launch("delta_layer", s.kernel, layer, ceil_div(s.dim, s.n_columns) * s.v_heads, layer.n_seq_rows + n_tiles);
    if (has_chunks()) run_chunks(layer.delta, 1);
    simt::DeltaFinishParams finish{};
    finish.conv = layer.conv;
    finish.n_norm_blocks =
        static_cast<int>(ceil_div(n_tokens_ * ceil_div(s.value_dim(), simt::kSegmentElems), simt::kWarps));
    finish.x = layer.delta.out;
    finish.gate = gate_;
    finish.norm_weight = norm_weight_;
    finish.out = zeros(n_tokens_ * s.value_dim());
    finish.q8 = q8_buffers();
    finish.n_rows = step_.counts + simt::kTokens;
    finish.width = s.value_dim();
    finish.head_dim = s.dim;
    finish.act = simt::kSilu;
    finish.q8_block = s.q8_block;
    finish.norm_eps = kEps;
    launch("delta_layer", "delta_finish", finish,
           finish.n_norm_blocks + max_seqs_ * ceil_div(s.n_channels(), simt::kFinishChannels));
    return results(layer.delta.out, states, finish.out, finish.q8);
  }

  void expect_same_bits() {
    float* states = random_floats(n_slots_ * GetParam().slot_floats());
    float* same_states = copy_of(states, n_slots_ * GetParam().slot_floats());
    const LayerResult expected = run_ops(states), got = run_layer(same_states);
    EXPECT_TRUE(got.delta == expected.delta);
    EXPECT_TRUE(got.states == expected.states);
    EXPECT_TRUE(got.out == expected.out);
    EXPECT_TRUE(got.q == expected.q);
    EXPECT_TRUE(got.scale == expected.scale);
    EXPECT_TRUE(got.sum == expected.sum);
  }

  static constexpr float kEps = 1e-6f;
  static constexpr unsigned kChunkBytes = 144128;  // of shared memory
  std::mt19937 random_{11};
  std::unique_ptr<Device> device_;
  std::vector<Buffer> buffers_;
  simt::Step step_{};
  int n_tokens_ = 0, n_seqs_ = 0, n_slots_ = 0, max_seqs_ = 0;
  const float *x_ = nullptr, *conv_weight_ = nullptr, *alpha_ = nullptr, *beta_ = nullptr, *dt_bias_ = nullptr,
              *a_ = nullptr, *gate_ = nullptr, *norm_weight_ = nullptr;
};

TEST_P(DeltaLayerTest, is_bit_identical_to_the_kernels_of_its_ops) {
  make_step(kShort);
  make_inputs();
  expect_same_bits();
}

TEST_P(DeltaLayerTest, writes_the_state_after_a_row_as_a_step_that_ends_there) {
  for (const SeqTokens& seq : {SeqTokens{0, 61, 8, {1, 2, 3, 4, 5, 6, 7, 0}}, SeqTokens{0, 20, 5, {0, 3, -1, 2, 1}},
                               SeqTokens{0, 9, 2, {-1, 1}}}) {
    make_step({seq});
    make_inputs();
    const int n_floats = GetParam().slot_floats();
    const float* const before = random_floats(n_slots_ * n_floats);
    const Floats states = run_layer(copy_of(before, n_slots_ * n_floats)).states;
    const auto state_of = [&](const Floats& all, int slot) {
      return Floats(all.begin() + slot * n_floats, all.begin() + (slot + 1) * n_floats);
    };
    if (std::ranges::count(seq.row_slots, 0) == 0) {
      EXPECT_TRUE(state_of(states, 0) == download(before, n_floats)) << "a slot of no row";
    }
    for (int row = 0; row < seq.n_tokens; ++row) {
      const int slot = seq.row_slots[static_cast<size_t>(row)];
      if (slot < 0) continue;
      make_step({{0, seq.position, row + 1}});
      const Floats expected = run_layer(copy_of(before, n_floats)).states;
      EXPECT_TRUE(state_of(states, slot) == expected) << "row " << row << " of " << seq.n_tokens;
    }
  }
}

TEST_P(DeltaLayerTest, with_chunks_is_bit_identical_to_the_kernels_of_its_ops) {
  // Such dimensions, or on such a GPU, are never scanned in chunks.
  if (GetParam().dim > 128 || device_->limits().max_shared_bytes < static_cast<int>(kChunkBytes)) return;
  make_step(with_chunks());
  make_inputs();
  expect_same_bits();
}

// The published models' heads, then those of the general kernels.
INSTANTIATE_TEST_SUITE_P(Shapes, DeltaLayerTest,
                         testing::Values(LayerShape{"delta_layer_128", 2, 4, 128, 4, 1, 128, 256},
                                         LayerShape{"delta_layer_128", 2, 4, 128, 4, 0, 128, 32},
                                         LayerShape{"delta_layer_upto_128", 2, 6, 16, 3, 1, 64, 256},
                                         LayerShape{"delta_layer_upto_128", 1, 2, 128, 8, 0, 64, 256},
                                         LayerShape{"delta_layer_upto_256", 1, 2, 256, 2, 0, 32, 32}));

}  // namespace
}  // namespace zinc::cuda
