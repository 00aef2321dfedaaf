#include "quantize/importance_matrix.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "gguf/gguf_encoding.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/test_files.h"

namespace zinc {
namespace {

using Floats = std::vector<float>;

ImportanceMatrix sample_matrix() {
  ImportanceMatrix matrix{.entries = {}, .datasets = {"wiki.txt"}, .chunk_count = 2, .chunk_size = 4};
  matrix.entries["blk.0.attn_q.weight"] = {.sums = {8, 0, 2}, .counts = {8}};
  matrix.entries["blk.0.ffn_up_exps.weight"] = {.sums = {2, 4, 0, 0, 9, 3}, .counts = {2, 0, 3}};
  matrix.run = ImportanceRun{.model = "0a", .tokens = "0b"};
  return matrix;
}

// What llama-imatrix writes for one weight.
GgufWriter file_with(const Shape& sums_shape, const Floats& sums, const Shape& counts_shape, const Floats& counts) {
  GgufWriter w;
  w.add("general.type", "imatrix").add("imatrix.datasets", std::vector<std::string>{"a.txt", "b.txt"});
  w.add("imatrix.chunk_count", uint32_t{3}).add("imatrix.chunk_size", uint32_t{512});
  w.add_tensor("blk.0.w.weight.in_sum2", sums_shape, k_f32, sums);
  w.add_tensor("blk.0.w.weight.counts", counts_shape, k_f32, counts);
  return w;
}

class ImportanceMatrixTest : public testing::Test {
 protected:
  std::string error_of(const GgufWriter& writer) const {
    writer.write(folder_ / "hostile.gguf");
    const auto read = read_importance_matrix(folder_ / "hostile.gguf");
    return read.ok() ? "" : read.error().message;
  }

  std::string error_of_bytes(std::string_view bytes) const {
    const auto read = read_importance_matrix(put(folder_ / "hostile.dat", bytes));
    return read.ok() ? "" : read.error().message;
  }

  const TestFolder folder_;
};

std::string number(int32_t value) { return GgufWriter::number(value); }

// One entry of the binary format.
std::string legacy_entry(std::string_view name, int32_t n_windows, const Floats& values) {
  std::string out = number(static_cast<int32_t>(name.size())) + std::string(name) + number(n_windows) +
                    number(static_cast<int32_t>(values.size()));
  for (const float x : values) out += GgufWriter::number(x);
  return out;
}

TEST_F(ImportanceMatrixTest, written_file_is_read_back) {
  const ImportanceMatrix matrix = sample_matrix();
  ASSERT_TRUE(write_importance_matrix(matrix, folder_ / "a.gguf").ok());
  const auto read = read_importance_matrix(folder_ / "a.gguf");
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read.value().datasets, matrix.datasets);
  EXPECT_EQ(read.value().chunk_count, 2);
  EXPECT_EQ(read.value().chunk_size, 4);
  EXPECT_EQ(read.value().run, matrix.run);
  ASSERT_EQ(read.value().entries.size(), 2u);
  for (const auto& [name, entry] : matrix.entries) {
    EXPECT_EQ(read.value().entries.at(name).sums, entry.sums) << name;
    EXPECT_EQ(read.value().entries.at(name).counts, entry.counts) << name;
  }
}

TEST_F(ImportanceMatrixTest, file_of_llama_imatrix_is_read) {
  file_with(Shape{2, 2}, {1, 2, 3, 4}, Shape{2, 1}, {1, 5}).write(folder_ / "a.gguf");
  const auto read = read_importance_matrix(folder_ / "a.gguf");
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read.value().datasets, (std::vector<std::string>{"a.txt", "b.txt"}));
  EXPECT_FALSE(read.value().run);
  const ImportanceEntry& entry = read.value().entries.at("blk.0.w.weight");
  EXPECT_EQ(entry.n_mat(), 2u);
  EXPECT_EQ(entry.n_columns(), 2u);
  EXPECT_EQ(entry.counts, (std::vector<int64_t>{1, 5}));
}

TEST_F(ImportanceMatrixTest, importance_is_the_mean_of_squares) {
  const ImportanceMatrix matrix = sample_matrix();
  const auto of = [&](const ImportanceRow& row) { return importance_of(matrix, row); };
  EXPECT_EQ(of({.name = "blk.0.attn_q.weight", .n_columns = 3}).value(), (Floats{1, 0, 0.25}));
  EXPECT_EQ(of({.name = "blk.0.ffn_up_exps.weight", .n_mat = 3, .n_columns = 2, .mat = 2}).value(), (Floats{3, 1}));
  EXPECT_TRUE(of({.name = "output.weight", .n_columns = 3}).value().empty());
  EXPECT_FALSE(of({.name = "blk.0.attn_q.weight", .n_columns = 4}).ok());
  EXPECT_FALSE(of({.name = "blk.0.ffn_up_exps.weight", .n_mat = 2, .n_columns = 3}).ok());
}

TEST_F(ImportanceMatrixTest, unused_expert_has_the_mean_over_the_others) {
  const ImportanceMatrix matrix = sample_matrix();
  const ImportanceRow unused{.name = "blk.0.ffn_up_exps.weight", .n_mat = 3, .n_columns = 2, .mat = 1};
  EXPECT_EQ(importance_of(matrix, unused).value(), (Floats{11.0F / 5, 7.0F / 5}));
}

TEST_F(ImportanceMatrixTest, weight_that_no_activation_reached_has_no_importance) {
  ImportanceMatrix matrix = sample_matrix();
  matrix.entries["unused"] = {.sums = {0, 0}, .counts = {0}};
  EXPECT_TRUE(importance_of(matrix, {.name = "unused", .n_columns = 2}).value().empty());
}

TEST_F(ImportanceMatrixTest, one_count_applies_to_all_matrices_of_a_weight) {
  ImportanceMatrix matrix;
  matrix.entries["w"] = {.sums = {2, 4, 6, 8}, .counts = {2}};
  EXPECT_EQ(importance_of(matrix, {.name = "w", .n_mat = 2, .n_columns = 2, .mat = 1}).value(), (Floats{3, 4}));
}

TEST_F(ImportanceMatrixTest, merge_adds_sums_and_counts) {
  ImportanceMatrix a = sample_matrix(), b = sample_matrix();
  b.datasets = {"b.txt"};
  b.chunk_size = 2;
  b.entries.erase("blk.0.attn_q.weight");
  b.entries["output.weight"] = {.sums = {1}, .counts = {1}};
  ASSERT_TRUE(merge_importance(a, b).ok());
  EXPECT_EQ(a.entries.at("blk.0.attn_q.weight").sums, (Floats{8, 0, 2}));
  EXPECT_EQ(a.entries.at("blk.0.ffn_up_exps.weight").sums, (Floats{4, 8, 0, 0, 18, 6}));
  EXPECT_EQ(a.entries.at("blk.0.ffn_up_exps.weight").counts, (std::vector<int64_t>{4, 0, 6}));
  EXPECT_EQ(a.entries.at("output.weight").counts, (std::vector<int64_t>{1}));
  EXPECT_EQ(a.datasets, (std::vector<std::string>{"wiki.txt", "b.txt"}));
  EXPECT_EQ(a.chunk_count, 3);  // windows of 4: 2 of 4 and 2 of 2
  EXPECT_FALSE(a.run);          // it has other texts too: no run continues from it
}

TEST_F(ImportanceMatrixTest, merge_of_different_models_is_refused) {
  ImportanceMatrix a = sample_matrix(), b = sample_matrix();
  b.entries["blk.0.attn_q.weight"] = {.sums = {1, 2}, .counts = {1}};
  const Status merged = merge_importance(a, b);
  ASSERT_FALSE(merged.ok());
  EXPECT_NE(merged.error().message.find("different models"), std::string::npos);
}

TEST_F(ImportanceMatrixTest, merge_whose_sum_is_not_a_float_is_refused) {
  ImportanceMatrix a = sample_matrix();
  a.entries["blk.0.attn_q.weight"].sums[0] = 3e38F;
  const ImportanceMatrix b = a;
  EXPECT_FALSE(merge_importance(a, b).ok());
}

TEST_F(ImportanceMatrixTest, hostile_files_are_refused) {
  const Floats four = {1, 2, 3, 4};
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInfinity = std::numeric_limits<float>::infinity();
  const auto expect_refused = [&](const GgufWriter& writer, std::string_view reason) {
    const std::string message = error_of(writer);
    EXPECT_NE(message.find(reason), std::string::npos) << message << "\nexpected: " << reason;
  };
  ASSERT_EQ(error_of(file_with(Shape{4}, four, Shape{1}, {1})), "");
  expect_refused(file_with(Shape{4}, {1, kNan, 3, 4}, Shape{1}, {1}), "not finite");
  expect_refused(file_with(Shape{4}, {1, kInfinity, 3, 4}, Shape{1}, {1}), "not finite");
  expect_refused(file_with(Shape{4}, {1, -1, 3, 4}, Shape{1}, {1}), "negative");
  expect_refused(file_with(Shape{4}, four, Shape{1}, {-1}), "negative");
  expect_refused(file_with(Shape{4}, four, Shape{1}, {1e20F}), "too large");
  expect_refused(file_with(Shape{4}, four, Shape{1}, {0}), "count of 0");
  expect_refused(file_with(Shape{4}, four, Shape{2, 1}, {1, 1}), "does not go with counts");
  expect_refused(file_with(Shape{2, 2}, four, Shape{3}, {1, 1, 1}), "does not go with counts");
  expect_refused(file_with(Shape{4}, four, Shape{1}, {1}).add_tensor("x.in_sum2", {1}, k_f32, Floats{1}), "x.counts");
  expect_refused(file_with(Shape{4}, four, Shape{1}, {1}).add_tensor("x.counts", {1}, k_f32, Floats{1}), "x.in_sum2");
  GgufWriter hollow = file_with(Shape{4}, four, Shape{1}, {1});
  hollow.add_tensor("x.in_sum2", Shape{0}, k_f32, std::string_view("")).add_tensor("x.counts", {1}, k_f32, Floats{1});
  EXPECT_NE(error_of(hollow), "");
  GgufWriter half = file_with(Shape{4}, four, Shape{1}, {1});
  half.add_tensor("x.in_sum2", {4}, k_f16, four).add_tensor("x.counts", {1}, k_f32, Floats{1});
  expect_refused(half, "f32");
  GgufWriter model;
  expect_refused(model.add("general.type", "model"), "not an importance matrix");
  GgufWriter empty;
  empty.add("general.type", "imatrix").add("imatrix.datasets", std::vector<std::string>{});
  empty.add("imatrix.chunk_count", uint32_t{1}).add("imatrix.chunk_size", uint32_t{512});
  expect_refused(empty, "no entries");
  GgufWriter huge;
  huge.add("general.type", "imatrix").add("imatrix.chunk_count", uint32_t{1});
  expect_refused(huge.add("imatrix.chunk_size", ~uint32_t{0}), "imatrix.chunk_size");
}

TEST_F(ImportanceMatrixTest, binary_file_of_older_versions_is_read) {
  const std::string bytes = number(2) + legacy_entry("a.weight", 2, {1, 4}) + legacy_entry("b.weight", 1, {0.5F}) +
                            number(7) + number(5) + "b.txt";
  const auto read = read_importance_matrix(put(folder_ / "a.dat", bytes));
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(importance_of(read.value(), {.name = "a.weight", .n_columns = 2}).value(), (Floats{0.5F, 2}));
  EXPECT_EQ(importance_of(read.value(), {.name = "a.weight", .n_mat = 2, .n_columns = 1, .mat = 1}).value(),
            (Floats{2}));
  EXPECT_EQ(read.value().chunk_count, 7);
  EXPECT_EQ(read.value().datasets, (std::vector<std::string>{"b.txt"}));
}

TEST_F(ImportanceMatrixTest, damaged_binary_files_are_refused) {
  const std::string entry = legacy_entry("a.weight", 1, {1, 4});
  ASSERT_EQ(error_of_bytes(number(1) + entry), "");
  for (size_t n = 0; n < 4 + entry.size(); ++n) {
    EXPECT_NE(error_of_bytes((number(1) + entry).substr(0, n)), "") << n;
  }
  EXPECT_NE(error_of_bytes(number(0)), "");
  EXPECT_NE(error_of_bytes(number(-1) + entry), "");
  EXPECT_NE(error_of_bytes(number(2) + entry + entry), "");
  EXPECT_NE(error_of_bytes(number(1) + legacy_entry("a.weight", 1, {})), "");
  EXPECT_NE(error_of_bytes(number(1) + legacy_entry("a.weight", 1, {-1})), "");
  EXPECT_NE(error_of_bytes(number(1) + legacy_entry("a.weight", 1, {std::nanf("")})), "");
  EXPECT_NE(error_of_bytes(number(1) + number(std::numeric_limits<int32_t>::max()) + "a"), "");
  EXPECT_NE(error_of_bytes(number(1) + entry + number(1) + number(100) + "short"), "");
}

}  // namespace
}  // namespace zinc
