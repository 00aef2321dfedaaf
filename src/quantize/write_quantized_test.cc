// Quantized files: what every type makes of a small model, split files, and errors, which leave nothing behind.
#include "quantize/write_quantized.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <limits>
#include <random>

#include "base/memory_info.h"
#include "tests/support/contains_all.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/test_files.h"

namespace zinc {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kWidth = 256, kRows = 8, kExperts = 3;

std::vector<float> random_values(size_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 0.05F);
  std::vector<float> values(n);
  for (float& value : values) value = normal(random);
  return values;
}

// Two layers with experts, in a stored format. `bad` replaces one weight of blk.1.attn_v.weight, in row 5.
GgufWriter small_model(const char* format_name = "f16", std::optional<float> bad = {}) {
  const Format& format = *find_format(format_name);
  GgufWriter writer;
  writer.add("general.architecture", "qwen3moe").add("general.file_type", uint32_t{1});
  writer.add("qwen3moe.block_count", uint32_t{2}).add("qwen3moe.expert_count", uint32_t{kExperts});
  writer.add("qwen3moe.attention.head_count", uint32_t{4}).add("qwen3moe.attention.head_count_kv", uint32_t{2});
  unsigned seed = 0;
  const auto add = [&](const std::string& name, const Shape& shape, const Format& of) {
    std::vector<float> values = random_values(static_cast<size_t>(shape.elems()), ++seed);
    if (bad && name == "blk.1.attn_v.weight") values[5 * kWidth + 7] = *bad;
    writer.add_tensor(name, shape, of, values);
  };
  add("token_embd.weight", {16, kWidth}, format);
  add("output_norm.weight", {kWidth}, k_f32);
  add("output.weight", {16, kWidth}, format);
  for (int i = 0; i < 2; ++i) {
    const std::string layer = fmt::format("blk.{}.", i);
    add(layer + "attn_q.weight", {2 * kRows, kWidth}, format);
    add(layer + "attn_v.weight", {kRows, kWidth}, format);
    add(layer + "ffn_gate_inp.weight", {kExperts, kWidth}, k_f32);
    add(layer + "ffn_up_exps.weight", {kExperts, kRows, kWidth}, format);
    add(layer + "ffn_down_exps.weight", {kExperts, kRows, 2 * kWidth}, format);
    add(layer + "attn_k.weight", {16, 96}, format);  // rows that are not a multiple of 256 long
  }
  return writer;
}

// An entry for every matrix but the tables and blk.1.attn_q.weight; one expert was never used.
ImportanceMatrix importance_for(const GgufFile& file) {
  ImportanceMatrix matrix{.entries = {}, .datasets = {"text.txt"}, .chunk_count = 4, .chunk_size = 512};
  unsigned seed = 100;
  for (const GgufTensor& tensor : file.tensors()) {
    if (tensor.view.shape.n_dims() < 2 || tensor.name.starts_with("token_embd") ||
        tensor.name == "blk.1.attn_q.weight") {
      continue;
    }
    const ImportanceRow row = importance_row(tensor, 0);
    ImportanceEntry entry{.sums = random_values(static_cast<size_t>(row.n_mat * row.n_columns), ++seed), .counts = {}};
    for (float& sum : entry.sums) sum = std::abs(sum);
    entry.counts.assign(static_cast<size_t>(row.n_mat), 10);
    if (row.n_mat > 1) entry.counts[1] = 0;
    matrix.entries.emplace(tensor.name, std::move(entry));
  }
  return matrix;
}

QuantizeOptions options_for(const char* type) { return {.type = find_quantization_type(type)}; }

std::string message_of(const GgufFile& file, const QuantizeOptions& options) {
  const auto plan = plan_quantization(file, options);
  return plan.ok() ? "" : plan.error().message;
}

size_t n_files(const fs::path& folder) {
  return static_cast<size_t>(std::distance(fs::directory_iterator(folder), {}));
}

class WriteQuantizedTest : public testing::Test {
 protected:
  GgufFile open(const fs::path& path) {
    auto file = GgufFile::open(path);
    EXPECT_TRUE(file.ok()) << file.error().message;
    return std::move(file.value());
  }
  GgufFile model(const char* format = "f16", std::optional<float> bad = {}) {
    small_model(format, bad).write(folder_ / "in.gguf");
    return open(folder_ / "in.gguf");
  }
  Status write(const GgufFile& file, const QuantizeOptions& options, const WriteCallbacks& callbacks = {},
               int n_threads = 0) {
    ZINC_TRY(plan, plan_quantization(file, options));
    return write_quantized(file, plan, options.importance, output_paths(output(), plan.headers.size()), callbacks,
                           n_threads);
  }
  fs::path output() const { return folder_ / "out.gguf"; }

  const TestFolder folder_;
};

// Each row as its format's quantizer makes it from the row's own importance.
std::string expected_bytes(const GgufTensor& tensor, const Format& format, const ImportanceMatrix* importance) {
  const auto n = static_cast<size_t>(tensor.view.shape.inner());
  const auto n_rows = static_cast<size_t>(tensor.view.shape.elems()) / n;
  const auto n_mat = static_cast<size_t>(importance_row(tensor, 0).n_mat);
  std::vector<float> row(n);
  std::string bytes(n_rows * row_bytes(format, n), '\0');
  for (size_t i = 0; i < n_rows; ++i) {
    const size_t n_source = row_bytes(*tensor.view.format, n);
    tensor.view.format->dequantize(tensor.view.bytes.subspan(i * n_source, n_source), row);
    std::vector<float> weights;
    if (importance) {
      const auto mat = static_cast<int64_t>(i / (n_rows / n_mat));
      if (auto found = importance_of(*importance, importance_row(tensor, mat)); found.ok()) weights = found.value();
    }
    const auto out = std::as_writable_bytes(std::span(bytes)).subspan(i * row_bytes(format, n), row_bytes(format, n));
    find_quantizer(format)->quantize(row, weights, out);
  }
  return bytes;
}

TEST_F(WriteQuantizedTest, every_type_stores_what_its_quantizers_make_of_each_row) {
  const GgufFile file = model();
  ImportanceMatrix importance = importance_for(file);
  importance.entries.emplace("blk.1.attn_q.weight", importance.entries.at("blk.0.attn_q.weight"));
  for (const QuantizationType& type : quantization_types()) {
    QuantizeOptions options{.type = &type, .importance = &importance, .importance_path = "imatrix.gguf"};
    const Status written = write(file, options);
    ASSERT_TRUE(written.ok()) << type.name << ": " << written.error().message;
    const GgufFile quantized = open(output());
    ASSERT_EQ(quantized.tensors().size(), file.tensors().size());
    size_t n_changed = 0;
    for (size_t i = 0; i < file.tensors().size(); ++i) {
      const GgufTensor &from = file.tensors()[i], &to = quantized.tensors()[i];
      ASSERT_EQ(from.name, to.name);
      EXPECT_EQ(from.view.shape, to.view.shape);
      const bool is_same = from.view.format == to.view.format;
      n_changed += is_same ? 0 : 1;
      const std::string expected =
          is_same ? std::string(reinterpret_cast<const char*>(from.view.bytes.data()), from.view.bytes.size())
                  : expected_bytes(from, *to.view.format, &importance);
      EXPECT_TRUE(std::ranges::equal(to.view.bytes, std::as_bytes(std::span(expected)))) << type.name << " " << to.name;
    }
    EXPECT_EQ(n_changed, type.name == "copy" || type.name == "f16" ? 0u : 12u) << type.name;
    if (type.format.empty()) continue;
    EXPECT_EQ(quantized.get<int64_t>("general.file_type").value(), type.file_type);
    EXPECT_EQ(quantized.get<int64_t>("general.quantization_version").value(), 2);
    EXPECT_EQ(quantized.get<std::string_view>("quantize.imatrix.file").value(), "imatrix.gguf");
    EXPECT_EQ(quantized.get<std::string_view>("quantize.imatrix.dataset").value(), "text.txt");
    EXPECT_EQ(quantized.get<int64_t>("quantize.imatrix.chunks_count").value(), 4);
  }
}

TEST_F(WriteQuantizedTest, a_copy_has_the_bytes_of_the_input) {
  const GgufFile file = model();
  ASSERT_TRUE(write(file, options_for("copy")).ok());
  EXPECT_EQ(contents(output()), contents(folder_ / "in.gguf"));
}

TEST_F(WriteQuantizedTest, bytes_do_not_depend_on_the_number_of_threads) {
  const GgufFile file = model();
  ASSERT_TRUE(write(file, options_for("q4_k_m"), {}, 1).ok());
  const std::string one = contents(output());
  ASSERT_TRUE(write(file, options_for("q4_k_m"), {}, 7).ok());
  EXPECT_TRUE(contents(output()) == one);
}

TEST_F(WriteQuantizedTest, a_split_input_becomes_one_file_or_as_many_shards) {
  const fs::path first = small_model().write_split(folder_ / "in", 3);
  const GgufFile split = open(first);
  ASSERT_TRUE(write(split, options_for("q8_0")).ok());
  const GgufFile merged = open(output());
  EXPECT_FALSE(merged.find("split.count"));
  QuantizeOptions keeping = options_for("q8_0");
  keeping.keep_split = true;
  ASSERT_TRUE(write(split, keeping).ok());
  const GgufFile shards = open(folder_ / "out-00001-of-00003.gguf");
  EXPECT_EQ(shards.shard_names().size(), 3u);
  EXPECT_EQ(shards.get<int64_t>("general.file_type").value(), 7);
  ASSERT_EQ(shards.tensors().size(), merged.tensors().size());
  for (size_t i = 0; i < merged.tensors().size(); ++i) {
    EXPECT_EQ(shards.tensors()[i].name, merged.tensors()[i].name);
    EXPECT_EQ(shards.tensors()[i].shard, split.tensors()[i].shard);
    EXPECT_TRUE(std::ranges::equal(shards.tensors()[i].view.bytes, merged.tensors()[i].view.bytes));
  }
}

TEST(OutputPaths, shards_are_named_after_the_output_with_or_without_its_suffix) {
  EXPECT_EQ(output_paths("a/b.gguf", 1), std::vector<fs::path>{"a/b.gguf"});
  const std::vector<fs::path> shards = {"a/b-00001-of-00002.gguf", "a/b-00002-of-00002.gguf"};
  EXPECT_EQ(output_paths("a/b.gguf", 2), shards);
  EXPECT_EQ(output_paths("a/b", 2), shards);
  EXPECT_EQ(output_paths("a/b-00001-of-00002.gguf", 2), shards);
}

TEST_F(WriteQuantizedTest, first_matching_override_decides) {
  const GgufFile file = model();
  QuantizeOptions options = options_for("q4_k_m");
  options.overrides = {
      {"blk\\.1\\.attn_q", nullptr}, {"attn_q|ffn_up", find_format("q8_0")}, {"attn_k", find_format("q6_k")}};
  const auto plan = plan_quantization(file, options);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  const auto format_of = [&](std::string_view name) {
    for (const PlannedTensor& tensor : plan.value().tensors) {
      if (tensor.source->name == name) return tensor.format->name;
    }
    return std::string_view();
  };
  EXPECT_EQ(format_of("blk.1.attn_q.weight"), "f16");
  EXPECT_EQ(format_of("blk.0.attn_q.weight"), "q8_0");
  EXPECT_EQ(format_of("blk.1.ffn_up_exps.weight"), "q8_0");
  EXPECT_EQ(format_of("blk.1.attn_k.weight"), "q8_0") << "its rows are not whole blocks of q6_k";
  EXPECT_EQ(format_of("blk.0.ffn_gate_inp.weight"), "f32");
}

TEST_F(WriteQuantizedTest, overrides_that_cannot_apply_are_errors) {
  const GgufFile file = model();
  QuantizeOptions options = options_for("q4_k_m");
  options.overrides = {{"attn_z", find_format("q8_0")}};
  EXPECT_TRUE(contains_all(message_of(file, options), {"'attn_z'", "matches no tensor"}));
  options.overrides = {{"_norm", find_format("q8_0")}};
  EXPECT_TRUE(contains_all(message_of(file, options), {"'_norm'", "can be quantized"}));
  options.overrides = {{"attn_q", find_format("q8_0")}, {"1.attn_q", find_format("q8_0")}};
  EXPECT_TRUE(contains_all(message_of(file, options), {"'1.attn_q'", "an earlier --tensor"}));
  options.overrides = {{"attn_(q", find_format("q8_0")}};
  EXPECT_TRUE(contains_all(message_of(file, options), {"'attn_(q'", "not a regular expression"}));
}

TEST_F(WriteQuantizedTest, quantizing_again_must_be_allowed) {
  const GgufFile file = model("q8_0");
  EXPECT_TRUE(contains_all(message_of(file, options_for("q4_k_m")),
                           {"token_embd.weight", "already quantized, to q8_0", "--allow-requantize"}));
  QuantizeOptions options = options_for("q4_k_m");
  options.allow_requantize = true;
  EXPECT_TRUE(plan_quantization(file, options).ok());
  EXPECT_TRUE(plan_quantization(file, options_for("q8_0")).ok()) << "nothing changes";
}

TEST_F(WriteQuantizedTest, types_below_4_bits_ask_for_an_importance_matrix) {
  const GgufFile file = model();
  EXPECT_TRUE(
      contains_all(message_of(file, options_for("iq2_xs")), {"importance matrix", "zinc imatrix", "--imatrix"}));
  QuantizeOptions planning = options_for("iq2_xs");
  planning.dry_run = true;
  EXPECT_TRUE(plan_quantization(file, planning).ok());
  const auto low = plan_quantization(file, options_for("q3_k_m"));
  ASSERT_TRUE(low.ok()) << low.error().message;
  EXPECT_TRUE(contains_all(low.value().warnings.at(0), {"q3_k", "less than 4 bits", "--imatrix"}));
  const auto high = plan_quantization(file, options_for("q4_k_m"));
  ASSERT_TRUE(high.ok());
  EXPECT_EQ(high.value().warnings.size(), 1u) << "only rows that are not whole blocks";
  EXPECT_TRUE(contains_all(high.value().warnings[0], {"2 tensors", "q5_0 for q4_k"})) << high.value().warnings[0];
}

TEST_F(WriteQuantizedTest, importance_must_be_of_the_model_and_complete_where_it_is_needed) {
  const GgufFile file = model();
  ImportanceMatrix importance = importance_for(file);
  QuantizeOptions options{
      .type = find_quantization_type("q3_k_m"), .importance = &importance, .importance_path = "i.gguf"};
  const auto plan = plan_quantization(file, options);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_TRUE(contains_all(plan.value().warnings.at(0), {"i.gguf has no entry for 1 tensor", "blk.1.attn_q.weight"}));
  options.type = find_quantization_type("iq2_xs");
  EXPECT_TRUE(contains_all(message_of(file, options), {"blk.1.attn_q.weight", "i.gguf has no entry"}));
  importance.entries.at("blk.0.attn_q.weight").sums.resize(32);
  EXPECT_TRUE(contains_all(message_of(file, options), {"blk.0.attn_q.weight", "another model"}));
}

TEST_F(WriteQuantizedTest, weights_that_are_not_numbers_name_their_row_and_leave_nothing) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), 1e6F}) {
    const GgufFile file = model("f32", bad);
    for (const char* type : {"q4_k_m", "f16"}) {
      const Status written = write(file, options_for(type));
      ASSERT_FALSE(written.ok());
      const char* const what = bad == 1e6F ? "beyond 65504" : "infinite or not a number";
      EXPECT_TRUE(contains_all(written.error().message, {"row 5 of tensor 'blk.1.attn_v.weight'", what}))
          << written.error().message;
    }
    EXPECT_EQ(write(file, options_for("bf16")).ok(), bad == 1e6F);
    fs::remove(output());
    EXPECT_EQ(n_files(folder_.path()), 1u);
  }
}

TEST_F(WriteQuantizedTest, cancelled_and_failed_writes_leave_nothing) {
  const fs::path first = small_model().write_split(folder_ / "in", 2);
  const GgufFile file = open(first);
  QuantizeOptions options = options_for("q4_k_m");
  options.keep_split = true;
  std::atomic<bool> is_cancelled = false;
  const Status cancelled =
      write(file, options,
            {.progress = [&](const WriteProgress& at) { is_cancelled = at.n_done > at.n_bytes / 2; },
             .cancelled = [&] { return is_cancelled.load(); }});
  ASSERT_FALSE(cancelled.ok());
  EXPECT_EQ(cancelled.error().code, ErrorCode::cancelled);
  EXPECT_EQ(n_files(folder_.path()), 2u);

  auto* const previous = std::signal(SIGXFSZ, SIG_IGN);  // a full disk
  struct rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const struct rlimit small = {.rlim_cur = 5'000, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const Status full = write(file, options);
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, previous);
  ASSERT_FALSE(full.ok());
  EXPECT_TRUE(contains_all(full.error().message, {"cannot write the file"})) << full.error().message;
  EXPECT_EQ(n_files(folder_.path()), 2u);
}

TEST_F(WriteQuantizedTest, memory_does_not_grow_with_a_tensor) {
  constexpr int64_t kManyRows = 32768, kColumns = 2048;  // 128 MB of f16, all zero: a sparse file
  GgufHeader header;
  header.set("general.architecture", "llama").add_tensor("output.weight", {kManyRows, kColumns}, k_f16);
  put(folder_ / "in.gguf", header.encode());
  fs::resize_file(folder_ / "in.gguf", header.file_bytes());
  const GgufFile file = open(folder_ / "in.gguf");
  const size_t n_before = resident_memory_bytes();
  size_t n_most = 0;
  const Status written =
      write(file, options_for("q8_0"),
            {.progress = [&](const WriteProgress&) { n_most = std::max(n_most, resident_memory_bytes()); },
             .cancelled = [] { return false; }});
  ASSERT_TRUE(written.ok()) << written.error().message;
  EXPECT_LT(n_most - std::min(n_before, n_most), size_t{40} << 20);
}

}  // namespace
}  // namespace zinc
