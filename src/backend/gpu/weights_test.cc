#include "backend/gpu/weights.h"

#include <gtest/gtest.h>

#include "graph/graph_builder.h"
#include "tensor/half.h"
#include "tests/support/host_device.h"
#include "tests/support/weight_set.h"

namespace zinc::gpu {
namespace {

// Keeps what it is given.
class RecordingUploader final : public WeightUploader {
 public:
  KernelFormats formats() const override { return kernels; }
  static constexpr size_t kStagingBytes = 4096;
  size_t staging_bytes() const override { return kStagingBytes; }
  Status upload_matrix(const WeightRows& rows, const DeviceMatrix& matrix, const BufferRange&) override {
    const size_t n_rows = static_cast<size_t>(matrix.n_out * matrix.n_experts);
    copied.emplace_back(n_rows * rows.row_bytes());
    rows.copy(0, n_rows, copied.back().data());
    return ok_status();
  }
  Status upload_vector(std::span<const float> vector, const BufferRange& to) override {
    std::memcpy(to.buffer->host_ptr<std::byte>() + to.offset, vector.data(), vector.size_bytes());
    return ok_status();
  }
  std::vector<std::vector<std::byte>> copied;
  KernelFormats kernels = {.backend = "test"};
};

class GpuWeights : public testing::Test {
 protected:
  // An embedding, a norm and a linear with the embedding's table.
  std::unique_ptr<Weights> upload(const Format& format) {
    std::vector<float> norm(64);
    for (size_t i = 0; i < norm.size(); ++i) norm[i] = static_cast<float>(i) * 0.5f;
    set_.add("table", {96, 64}, format).add("norm", {64}, norm);
    GraphBuilder g("weights", set_.source());
    const Value table = g.weight("table", {96, 64});
    const Value x = g.rms_norm(g.embed(table), g.weight("norm", {64}), 1e-6f);
    g.logits(g.linear(g.rows(x), table));
    graph_ = std::move(g.finish().value());
    const Graph* const graph = &graph_;
    return std::move(
        Weights::upload({&graph, 1}, device_, uploader_, [this](auto bytes) { released_ += bytes.size(); }).value());
  }
  WeightSet set_;
  Graph graph_;
  HostDevice device_;
  RecordingUploader uploader_;
  size_t released_ = 0;
};

TEST_F(GpuWeights, a_table_that_is_also_a_matrix_is_stored_once) {
  const auto weights = upload(*find_format("f16"));
  EXPECT_EQ(weights->table("table"), weights->matrix("table"));
  EXPECT_EQ(uploader_.copied.size(), 1u);
  EXPECT_EQ(weights->matrix("table")->n_out, 96);
  EXPECT_EQ(weights->matrix("other"), nullptr);
  EXPECT_GE(released_, 96u * 64 * 2);
}

TEST_F(GpuWeights, a_format_without_panels_becomes_f16_for_matmuls_and_f32_for_lookups) {
  const Format* format = find_format("q2_k");
  ASSERT_EQ(find_panel_format(format->name), nullptr);
  set_ = WeightSet();
  std::vector<std::byte> blocks(row_bytes(*format, 4 * 256));
  for (size_t i = 0; i < blocks.size(); ++i) blocks[i] = static_cast<std::byte>(i % 40);
  set_.add_blocks("table", {4, 256}, *format, blocks);
  GraphBuilder g("weights", set_.source());
  const Value table = g.weight("table", {4, 256});
  g.logits(g.linear(g.rows(g.embed(table)), table));
  graph_ = std::move(g.finish().value());
  const Graph* const graph = &graph_;
  const auto weights = std::move(Weights::upload({&graph, 1}, device_, uploader_, [](auto) {}).value());
  EXPECT_EQ(weights->table("table")->format->name, "f32");
  EXPECT_EQ(weights->matrix("table")->format->name, "f16");
  ASSERT_EQ(uploader_.copied.size(), 2u);
  std::vector<float> expected(4 * 256);
  format->dequantize(blocks, expected);
  ASSERT_EQ(uploader_.copied[0].size(), expected.size() * sizeof(float));
  EXPECT_EQ(std::memcmp(uploader_.copied[0].data(), expected.data(), uploader_.copied[0].size()), 0);
  ASSERT_EQ(uploader_.copied[1].size(), expected.size() * sizeof(uint16_t));
  for (size_t i = 0; i < expected.size(); ++i) {
    uint16_t half = 0;
    std::memcpy(&half, uploader_.copied[1].data() + 2 * i, 2);
    ASSERT_EQ(half, float_to_half(expected[i])) << i;
  }
}

TEST_F(GpuWeights, a_panel_format_without_kernels_on_this_device_is_dequantized) {
  uploader_.kernels.has_panels = [](std::string_view format) { return format != "bf16"; };
  const auto weights = upload(*find_format("bf16"));
  EXPECT_EQ(weights->table("table")->format->name, "f32");
  EXPECT_EQ(weights->matrix("table")->format->name, "f16");
}

TEST_F(GpuWeights, tensors_share_an_allocation_and_the_bytes_are_those_allocated) {
  const auto weights = upload(*find_format("f16"));
  ASSERT_EQ(device_.allocations.size(), 1u);
  EXPECT_EQ(weights->device_bytes(), device_.allocations[0].n_bytes);
  EXPECT_EQ(weights->device_bytes(), static_cast<size_t>(weights->matrix("table")->matrix_bytes) + 64 * sizeof(float));
  const float* norm = reinterpret_cast<const float*>(weights->vector("norm"));
  EXPECT_EQ(norm[7], 3.5f);
  EXPECT_EQ(weights->vector("norm") % 256, weights->matrix("table")->bytes % 256);
  EXPECT_EQ(weights->host_vector("norm")[3], 1.5f);
}

TEST_F(GpuWeights, streamed_graphs_share_memory_and_a_load_copies_those_of_one_graph) {
  const Format& f16 = *find_format("f16");
  set_.add("first", {96, 64}, f16).add("second", {32, 64}, f16);
  for (const char* norm : {"norm of first", "norm of second"}) set_.add(norm, {64}, std::vector<float>(64, 2.0f));
  const auto graph_of = [&](const std::string& matrix, int64_t rows) {
    GraphBuilder g(matrix, set_.source());
    const Value x = g.rms_norm(g.hidden_in(64), g.weight("norm of " + matrix, {64}), 1e-6f);
    g.logits(g.linear(g.rows(x), g.weight(matrix, {rows, 64})));
    return std::move(g.finish().value());
  };
  const Graph first = graph_of("first", 96), second = graph_of("second", 32);
  const std::vector<const Graph*> graphs = {&first, &second};
  auto owned = std::make_unique<RecordingUploader>();
  RecordingUploader& uploader = *owned;
  const auto weights = std::move(Weights::stream(graphs, device_, std::move(owned)).value());
  EXPECT_EQ(weights->matrix("first")->bytes, weights->matrix("second")->bytes);
  ASSERT_EQ(device_.allocations.size(), 1u);
  EXPECT_EQ(weights->device_bytes(), device_.allocations[0].n_bytes + RecordingUploader::kStagingBytes);
  EXPECT_LT(device_.allocations[0].n_bytes, 1024u + static_cast<size_t>(weights->matrix("first")->matrix_bytes));
  EXPECT_TRUE(uploader.copied.empty());
  ASSERT_TRUE(weights->load(second).ok());
  ASSERT_EQ(uploader.copied.size(), 1u);
  EXPECT_EQ(uploader.copied[0].size(), 32u * 64 * 2);
  ASSERT_TRUE(weights->load(first).ok());
  ASSERT_TRUE(weights->load(second).ok());
  EXPECT_EQ(uploader.copied.size(), 3u);
  EXPECT_EQ(uploader.copied[2], uploader.copied[0]);
  EXPECT_EQ(reinterpret_cast<const float*>(weights->vector("norm of first"))[7], 2.0f);
}

TEST(PanelLayouts, shorten_or_pad_the_last_segment) {
  const PanelFormat& q4_k = *find_panel_format("q4_k");
  const int64_t segment = 32 * (16 + 8 * 16);
  const PanelLayout short_rows = panel_layout(q4_k, 33, 256 + 64, false), padded = panel_layout(q4_k, 33, 320, true);
  EXPECT_EQ(short_rows.n_segments, 2);
  EXPECT_EQ(short_rows.n_last_groups, 2);
  EXPECT_EQ(short_rows.panel_bytes, segment + 32 * (16 + 2 * 16));
  EXPECT_EQ(short_rows.matrix_bytes, 2 * short_rows.panel_bytes) << "33 rows are two panels";
  EXPECT_EQ(padded.panel_bytes, 2 * segment);
}

}  // namespace
}  // namespace zinc::gpu
