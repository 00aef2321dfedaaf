// Importance matrices: those of tiny models against what llama-imatrix recorded, every backend against the reference,
// and `zinc imatrix` as a user runs it.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <numeric>

#include "engine/importance_collector.h"
#include "engine/perplexity.h"
#include "tests/support/contains_all.h"
#include "tests/support/program_fixture.h"
#include "tests/support/tested_backends.h"
#include "text/tokenizer.h"

namespace zinc {
namespace {

namespace fs = std::filesystem;

// The README.md of this folder says how the files were made.
const fs::path kRecorded = fs::path(ZINC_SOURCE_DIR) / "tests" / "data" / "imatrix";
constexpr int kWindow = 96, kWindows = 4;
constexpr double kBound = 0.003;  // observed: 0.0017 (Gemma), 2e-6 (others)

fs::path model_path(const std::string& name) {
  return fs::path(ZINC_SOURCE_DIR) / "tests" / "data" / "oracle" / "models" / (name + ".gguf");
}

std::vector<std::string> recorded_models() {
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(kRecorded)) {
    if (entry.path().extension() == ".gguf") names.push_back(entry.path().stem().string());
  }
  std::ranges::sort(names);
  return names;
}

std::string test_name(std::string name) {
  std::ranges::replace_if(
      name, [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
  return name;
}

WindowedText recorded_text(const ModelInstance& model) {
  const Tokenizer tokenizer = Tokenizer::load(model.file()).value();
  std::vector<TokenId> tokens;
  tokenizer.encode(contents(kRecorded / "text.txt"), {.add_special = true, .parse_special = false}, tokens);
  const std::optional<TokenId> bos = tokenizer.adds_bos() ? tokenizer.bos() : std::nullopt;
  return cut_into_windows(std::move(tokens), kWindow, kWindows, bos).value();
}

class Calibration {
 public:
  Calibration(const std::string& name, const std::string& backend, bool has_output_head = false)
      : model_(load(name, backend)),
        text_(recorded_text(model_)),
        collector_(std::move(
            ImportanceCollector::create(model_, {.window = kWindow, .has_output_head = has_output_head}).value())) {}

  ImportanceMatrix run() { return run(0, kWindows, collector_.empty_matrix()); }
  ImportanceMatrix run(int begin, int end, ImportanceMatrix matrix) {
    for (int w = begin; w < end; ++w) {
      const Status added = collector_.add_window(text_.at(w), matrix);
      EXPECT_TRUE(added.ok()) << added.error().message;
    }
    return matrix;
  }
  const ImportanceCollector& collector() const { return collector_; }

 private:
  static ModelInstance load(const std::string& name, const std::string& backend) {
    const Format* const kv_format = backend == "reference" ? &k_f32 : nullptr;
    return std::move(
        ModelInstance::load(model_path(name), {.backend = backend, .n_threads = 2, .kv_format = kv_format}).value());
  }

  ModelInstance model_;
  WindowedText text_;
  ImportanceCollector collector_;
};

// Of one weight: the sum of the differences relative to the sum of the means.
double difference(const ImportanceEntry& a, const ImportanceEntry& b) {
  double differences = 0, sum = 0;
  for (size_t i = 0; i < a.sums.size(); ++i) {
    differences += std::abs(double{a.sums[i]} - double{b.sums[i]});
    sum += double{a.sums[i]};
  }
  return differences / sum;
}

void expect_same(const ImportanceMatrix& a, const ImportanceMatrix& b) {
  ASSERT_EQ(a.entries.size(), b.entries.size());
  for (const auto& [name, entry] : a.entries) {
    EXPECT_EQ(entry.sums, b.entries.at(name).sums) << name;
    EXPECT_EQ(entry.counts, b.entries.at(name).counts) << name;
  }
  EXPECT_EQ(a.chunk_count, b.chunk_count);
}

class RecordedImatrixTest : public testing::TestWithParam<std::string> {};

TEST_P(RecordedImatrixTest, every_mean_is_that_of_llama_imatrix) {
  const ImportanceMatrix expected = std::move(read_importance_matrix(kRecorded / (GetParam() + ".gguf")).value());
  const ImportanceMatrix own = Calibration(GetParam(), "reference").run();
  EXPECT_EQ(own.chunk_count, expected.chunk_count);
  EXPECT_EQ(own.chunk_size, expected.chunk_size);
  double worst = 0;
  for (const auto& [name, entry] : expected.entries) {
    ASSERT_TRUE(own.entries.contains(name)) << name;
    const ImportanceEntry& of_us = own.entries.at(name);
    EXPECT_EQ(of_us.counts, entry.counts) << name;
    ASSERT_EQ(of_us.sums.size(), entry.sums.size()) << name;
    for (size_t i = 0; i < entry.sums.size(); ++i) {
      const double error = std::abs(double{of_us.sums[i]} - double{entry.sums[i]});
      worst = std::max(worst, error == 0 ? 0 : error / double{entry.sums[i]});
    }
  }
  EXPECT_EQ(own.entries.size(), expected.entries.size());
  EXPECT_LT(worst, kBound);
}

INSTANTIATE_TEST_SUITE_P(All, RecordedImatrixTest, testing::ValuesIn(recorded_models()),
                         [](const auto& info) { return test_name(info.param); });

struct BackendCase {
  const BackendInfo* backend;
  std::string model;
};

std::vector<BackendCase> backend_cases() {
  std::vector<BackendCase> cases;
  for (const BackendInfo* backend : available_backends()) {
    if (backend->name == "reference") continue;
    for (const char* model : {"qwen2-f16", "qwen3moe-f16", "qwen35-f16"}) cases.push_back({backend, model});
  }
  cases.push_back({split_devices(), "qwen3moe-f16"});
  return cases;
}

class BackendImatrixTest : public testing::TestWithParam<BackendCase> {};

TEST_P(BackendImatrixTest, sums_agree_with_the_reference_backend) {
  const auto& [backend, model] = GetParam();
  const ImportanceMatrix expected = Calibration(model, "reference").run();
  const ImportanceMatrix own = Calibration(model, std::string(backend->name)).run();
  ASSERT_EQ(own.entries.size(), expected.entries.size());
  for (const auto& [name, entry] : expected.entries) {
    EXPECT_EQ(own.entries.at(name).counts, entry.counts) << name;
    EXPECT_LT(difference(entry, own.entries.at(name)), 0.01) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(All, BackendImatrixTest, testing::ValuesIn(backend_cases()), [](const auto& info) {
  return test_name(std::string(info.param.backend->name) + "_" + info.param.model);
});

TEST(ImatrixTest, quantized_activations_of_the_cpu_backend_change_little) {
  for (const char* model : {"llama-q8_0", "gpt-oss-mxfp4", "qwen3next-q8_0"}) {
    const ImportanceMatrix expected = Calibration(model, "reference").run();
    const ImportanceMatrix own = Calibration(model, "cpu").run();
    for (const auto& [name, entry] : expected.entries) {
      const std::vector<int64_t>&counts = entry.counts, &own_counts = own.entries.at(name).counts;
      EXPECT_EQ(std::accumulate(own_counts.begin(), own_counts.end(), int64_t{0}),
                std::accumulate(counts.begin(), counts.end(), int64_t{0}));
      EXPECT_LT(difference(entry, own.entries.at(name)), 0.05) << model << " " << name;
    }
  }
}

TEST(ImatrixTest, every_row_is_counted_and_every_expert_of_a_token) {
  const ImportanceMatrix matrix = Calibration("qwen3moe-f16", "cpu").run();  // 7 experts, 3 used
  EXPECT_EQ(matrix.entries.at("blk.0.attn_q.weight").counts, (std::vector<int64_t>{kWindow * kWindows}));
  const std::vector<int64_t>& routed = matrix.entries.at("blk.1.ffn_down_exps.weight").counts;
  EXPECT_EQ(routed.size(), 7u);
  EXPECT_EQ(std::accumulate(routed.begin(), routed.end(), int64_t{0}), 3 * kWindow * kWindows);
  EXPECT_FALSE(matrix.entries.contains("output.weight"));
}

TEST(ImatrixTest, output_head_is_collected_on_request) {
  const ImportanceMatrix matrix = Calibration("llama-q8_0", "cpu", true).run();
  const ImportanceEntry& head = matrix.entries.at("output.weight");
  EXPECT_EQ(head.counts, (std::vector<int64_t>{kWindow * kWindows}));
  for (const float sum : head.sums) EXPECT_GT(sum, 0);
}

TEST(ImatrixTest, a_run_that_continues_from_a_file_ends_with_the_same_bits) {
  const TestFolder folder;
  Calibration calibration("qwen35-f16", "cpu");
  const ImportanceMatrix whole = calibration.run();
  ASSERT_TRUE(
      write_importance_matrix(calibration.run(0, 1, calibration.collector().empty_matrix()), folder / "a.gguf").ok());
  expect_same(whole, calibration.run(1, kWindows, std::move(read_importance_matrix(folder / "a.gguf").value())));
}

TEST(ImatrixTest, merging_equals_one_run_over_both_texts) {
  Calibration calibration("qwen3moe-f16", "cpu");
  const ImportanceMatrix empty = calibration.collector().empty_matrix(), whole = calibration.run();
  ImportanceMatrix merged = calibration.run(0, 2, empty);
  ASSERT_TRUE(merge_importance(merged, calibration.run(2, kWindows, empty)).ok());
  EXPECT_EQ(merged.chunk_count, whole.chunk_count);
  for (const auto& [name, entry] : whole.entries) {
    EXPECT_EQ(merged.entries.at(name).counts, entry.counts) << name;
    EXPECT_LT(difference(entry, merged.entries.at(name)), 1e-6) << name;
  }
}

TEST(ImatrixTest, a_cancelled_window_leaves_the_sums_unchanged) {
  const ModelInstance model = std::move(ModelInstance::load(model_path("qwen2-f16"), {.backend = "reference"}).value());
  const WindowedText text = recorded_text(model);
  bool is_cancelled = false;
  ImportanceCollector collector = std::move(
      ImportanceCollector::create(model, {.window = kWindow, .is_cancelled = [&] { return is_cancelled; }}).value());
  ImportanceMatrix matrix = collector.empty_matrix();
  ASSERT_TRUE(collector.add_window(text.at(0), matrix).ok());
  const ImportanceMatrix before = matrix;
  is_cancelled = true;
  const Status added = collector.add_window(text.at(1), matrix);
  ASSERT_FALSE(added.ok());
  EXPECT_EQ(added.error().code, ErrorCode::cancelled);
  expect_same(before, matrix);
}

TEST(ImatrixTest, experts_that_the_text_hardly_reached_are_reported) {
  ImportanceMatrix matrix;
  matrix.entries["blk.0.ffn_down_exps.weight"] = {.sums = {1, 0, 1}, .counts = {100, 0, 3}};
  matrix.entries["blk.0.ffn_up_exps.weight"] = matrix.entries["blk.0.ffn_down_exps.weight"];
  matrix.entries["blk.1.ffn_down_exps.weight"] = {.sums = {1, 1}, .counts = {100, kRareExpertRows}};
  const std::vector<RarelyUsedExperts> rare = rarely_used_experts(matrix);
  ASSERT_EQ(rare.size(), 1u);
  EXPECT_EQ(rare[0].weight, "blk.0.ffn_down_exps.weight");
  EXPECT_EQ(rare[0].n_experts, 3);
  EXPECT_EQ(rare[0].n_unused, 1);
  EXPECT_EQ(rare[0].n_rare, 1);
}

class ImatrixCommand : public ProgramFixture {
 protected:
  const std::string text_ = (kRecorded / "text.txt").string();

  // `zinc imatrix MODEL TEXT -c 32` with these options.
  Arguments collect(const Arguments& options) const {
    Arguments arguments = {"imatrix", kModel, text_, "-c", "32"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    return arguments;
  }
  std::string run_ok(const Arguments& arguments) const {
    const ProcessResult end = zinc(arguments);
    EXPECT_EQ(end.exit_code, 0) << text_of(arguments) << ": " << end.err;
    return end.out;
  }
  std::string bytes(const std::string& name) const { return contents(folder_ / name); }
};

TEST_F(ImatrixCommand, resumed_run_writes_the_file_of_an_uninterrupted_one) {
  EXPECT_TRUE(contains_all(run_ok(collect({"--windows", "6", "-o", "whole.gguf"})), {"whole.gguf", "6 windows of 32"}));
  run_ok(collect({"--windows", "2", "-o", "part.gguf"}));
  EXPECT_NE(bytes("part.gguf"), bytes("whole.gguf"));
  run_ok(collect({"--windows", "6", "-o", "part.gguf", "--resume", "--save-every", "1"}));
  EXPECT_EQ(bytes("part.gguf"), bytes("whole.gguf"));
  run_ok(collect({"--windows", "6", "-o", "new.gguf", "--resume"}));  // there is none yet
  EXPECT_EQ(bytes("new.gguf"), bytes("whole.gguf"));
}

TEST_F(ImatrixCommand, interrupt_saves_complete_windows_and_says_how_to_continue) {
  std::string long_text;
  for (int i = 0; i < 400; ++i) long_text += contents(text_);
  const ProcessResult end =
      shell("$ZINC imatrix $MODEL " + file("long.txt", long_text) +
            " -c 64 --backend reference --save-every 1 & pid=$!; for i in $(seq 600); do [ -e imatrix.gguf ] && break; "
            "sleep 0.1; done; kill -INT $pid; wait $pid");
  EXPECT_EQ(end.exit_code, 130) << end.err;
  EXPECT_TRUE(contains_all(end.err, {"interrupted", "imatrix.gguf has ", "--resume"}));
  const auto saved = read_importance_matrix(folder_ / "imatrix.gguf");
  ASSERT_TRUE(saved.ok()) << saved.error().message;
  EXPECT_GE(saved.value().chunk_count, 1);
  EXPECT_EQ(saved.value().entries.at("blk.0.attn_q.weight").counts[0], saved.value().chunk_count * 64);
}

TEST_F(ImatrixCommand, run_of_something_else_is_not_continued) {
  run_ok(collect({"--windows", "2"}));
  const std::string before = bytes("imatrix.gguf");
  const auto refused = [&](const Arguments& arguments) {
    const std::string line = refusal(arguments);
    EXPECT_EQ(bytes("imatrix.gguf"), before);
    return line;
  };
  EXPECT_TRUE(contains_all(refused(collect({})), {"already exists", "--resume", "--force"}));
  EXPECT_TRUE(contains_all(refused({"imatrix", kModel, text_, "-c", "16", "--resume"}), {"32 tokens", "16"}));
  EXPECT_TRUE(contains_all(refused(collect({"--windows", "1", "--resume"})), {"2 windows", "only 1"}));
  EXPECT_TRUE(contains_all(refused(collect({"--resume", "--process-output"})), {"entries"}));
  const std::string other_text = file("other.txt", "x" + contents(text_));
  EXPECT_TRUE(contains_all(refused({"imatrix", kModel, other_text, "-c", "32", "--resume"}), {"another text"}));
  const std::string other_model = model_path("qwen3-q8_0").string();
  EXPECT_TRUE(contains_all(refused({"imatrix", other_model, text_, "-c", "32", "--resume"}), {"another model"}));
  run_ok({"imatrix", "--merge", "imatrix.gguf", "-o", "merged.gguf"});
  EXPECT_TRUE(contains_all(refused(collect({"--resume", "-o", "merged.gguf"})), {"merged"}));
  run_ok(collect({"--windows", "1", "--force"}));
  EXPECT_NE(bytes("imatrix.gguf"), before);
}

TEST_F(ImatrixCommand, merge_adds_files) {
  run_ok(collect({"--windows", "2", "-o", "a.gguf"}));
  run_ok(collect({"--windows", "3", "-o", "b.gguf"}));
  EXPECT_TRUE(contains_all(run_ok({"imatrix", "--merge", "a.gguf", "b.gguf", "-o", "c.gguf"}), {"5 windows of 32"}));
  const auto merged = read_importance_matrix(folder_ / "c.gguf");
  ASSERT_TRUE(merged.ok()) << merged.error().message;
  EXPECT_EQ(merged.value().entries.at("blk.0.attn_q.weight").counts[0], 5 * 32);
  EXPECT_EQ(merged.value().datasets, (std::vector<std::string>{text_, text_}));
  EXPECT_TRUE(contains_all(refusal({"imatrix", "--merge", "a.gguf", kModel, "-o", "d.gguf"}),
                           {kModel, "not an importance matrix"}));
  const std::string other_model = model_path("qwen3-q8_0").string();
  run_ok({"imatrix", other_model, text_, "-c", "32", "--windows", "1", "-o", "other.gguf"});
  EXPECT_TRUE(contains_all(refusal({"imatrix", "--merge", "a.gguf", "other.gguf", "-o", "d.gguf"}),
                           {"other.gguf", "different models"}));
  EXPECT_FALSE(fs::exists(folder_ / "d.gguf"));
}

TEST_F(ImatrixCommand, experts_with_few_tokens_are_a_warning) {
  const std::string experts = model_path("qwen3moe-f16").string();
  const ProcessResult end = zinc({"imatrix", experts, text_, "-c", "32", "--windows", "1"});
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_TRUE(contains_all(end.err, {"window 1 of 1", "blk.0.ffn_down_exps.weight: of 7 experts", "more varied text"}));
  EXPECT_TRUE(contains_all(end.out, {"imatrix.gguf: 16 weights, 1 window of 32 tokens"}));
}

TEST_F(ImatrixCommand, wrong_usage_is_refused) {
  EXPECT_EQ(zinc({"imatrix"}).exit_code, 2);
  EXPECT_EQ(zinc({"imatrix", kModel}).exit_code, 2);
  EXPECT_EQ(zinc({"imatrix", kModel, text_, "--merge", "a.gguf"}).exit_code, 2);
  EXPECT_EQ(zinc(collect({"--resume", "--force"})).exit_code, 2);
  EXPECT_TRUE(contains_all(refusal({"imatrix", kModel, file("short.txt", "too short")}), {"short.txt", "512"}));
  EXPECT_TRUE(contains_all(zinc({"imatrix", kModel, text_, "--chunks", "3"}).err, {"--windows"}));
  EXPECT_TRUE(contains_all(zinc({"imatrix", kModel, text_, "--in-file", "a"}).err, {"--merge"}));
}

}  // namespace
}  // namespace zinc
