// `zinc quantize` as a black box: the new file runs, a dry run writes nothing, nothing is overwritten or left behind,
// and errors say what to do.
#include <filesystem>

#include "gguf/gguf_writer.h"
#include "tests/support/contains_all.h"
#include "tests/support/program_fixture.h"

namespace zinc {
namespace {

namespace fs = std::filesystem;

const std::string kExperts = ZINC_SOURCE_DIR "/tests/data/oracle/models/qwen3moe-f16.gguf";

class QuantizeCommandTest : public ProgramFixture {
 protected:
  std::string output() const { return (folder_ / "out.gguf").string(); }
  size_t n_files() const { return static_cast<size_t>(std::distance(fs::directory_iterator(folder_.path()), {})); }

  // One matrix of f16 zeros that take no space, in a folder of its own; empty: the file system has no such files.
  std::string sparse_model(int64_t n_rows, int64_t n_columns) const {
    GgufHeader header;
    header.set("general.architecture", "llama").add_tensor("blk.0.attn_q.weight", {n_rows, n_columns}, k_f16);
    const fs::path path = put(inputs_ / "sparse.gguf", header.encode());
    std::error_code error;
    fs::resize_file(path, header.file_bytes(), error);
    return error ? "" : path.string();
  }

  const TestFolder inputs_;
};

TEST_F(QuantizeCommandTest, quantized_file_runs_and_answers_nearly_alike) {
  for (const std::string& model : {kModel, kExperts}) {
    const ProcessResult quantized = zinc({"quantize", model, output(), "Q8_0", "--force"});
    ASSERT_EQ(quantized.exit_code, 0) << quantized.err;
    EXPECT_TRUE(contains_all(quantized.out, {"out.gguf: qwen", "q8_0", "bits per weight"})) << quantized.out;
    EXPECT_TRUE(contains_all(zinc({"inspect", output()}).out, {"general.file_type", "7"}));
    EXPECT_EQ(zinc({"run", output(), "--raw", "Hello", "-n", "4", "--temp", "0"}).exit_code, 0);
  }
}

TEST_F(QuantizeCommandTest, report_compares_the_new_file_with_the_input) {
  std::string text;
  for (int i = 0; i < 40; ++i) text += fmt::format("The number {} comes after the number {}.\n", i + 1, i);
  const ProcessResult end =
      zinc({"quantize", kModel, output(), "q8_0", "--report", file("text.txt", text), "-c", "32", "--windows", "2"});
  ASSERT_EQ(end.exit_code, 0) << end.err;
  EXPECT_TRUE(
      contains_all(end.out, {"perplexity", "over 30 tokens", "KL divergence mean 0.0", "p99", "top-1 agreement"}))
      << end.out;
  EXPECT_EQ(n_files(), 2u) << "the text and the output";
  const ProcessResult too_short =
      zinc({"quantize", kModel, output(), "q8_0", "--force", "--report", file("text.txt", "a")});
  EXPECT_EQ(too_short.exit_code, 1);
  EXPECT_TRUE(contains_all(too_short.err, {"text.txt", "fewer than one window"})) << too_short.err;
}

TEST_F(QuantizeCommandTest, dry_run_prints_the_exact_size_and_writes_nothing) {
  const ProcessResult plan = zinc({"quantize", kModel, "q8_0", "--dry-run"});
  ASSERT_EQ(plan.exit_code, 0) << plan.err;
  EXPECT_EQ(n_files(), 0u);
  ASSERT_EQ(zinc({"quantize", kModel, output(), "q8_0"}).exit_code, 0);
  const std::string n_bytes = fmt::format("({} bytes)", fs::file_size(output()));
  EXPECT_TRUE(contains_all(plan.out, {"f16 -> q8_0", "token_embd.weight", "f32", "output_norm.weight", n_bytes}))
      << plan.out;
  EXPECT_EQ(zinc({"quantize", kModel, output(), "q8_0", "--dry-run"}).out, plan.out);
}

TEST_F(QuantizeCommandTest, existing_files_and_the_input_are_not_replaced) {
  file("out.gguf", "mine");
  EXPECT_TRUE(contains_all(refusal({"quantize", kModel, output(), "q8_0"}), {"already exists", "--force"}));
  EXPECT_EQ(contents(output()), "mine");
  ASSERT_EQ(zinc({"quantize", kModel, output(), "q8_0", "--force"}).exit_code, 0);
  const std::string before = contents(output());
  EXPECT_TRUE(contains_all(refusal({"quantize", output(), output(), "copy", "--force"}), {"this is the input"}));
  EXPECT_TRUE(contents(output()) == before);
}

TEST_F(QuantizeCommandTest, errors_say_what_is_wrong_and_leave_nothing) {
  EXPECT_TRUE(contains_all(refusal({"quantize", sparse_model(4, 256), output(), "iq2_xs"}),
                           {"importance matrix", "--imatrix"}));
  EXPECT_TRUE(contains_all(refusal({"quantize", kModel, output(), "q8_0", "--tensor", "none=q4_0"}), {"'none'"}));
  EXPECT_TRUE(contains_all(refusal({"quantize", kModel, output(), "q8_0", "--imatrix", kModel}), {kModel}));
  EXPECT_TRUE(contains_all(refusal({"quantize", folder_ / "absent.gguf", output(), "q8_0"}), {"absent.gguf"}));
  EXPECT_TRUE(
      contains_all(refusal({"quantize", kModel, (folder_ / "absent" / "out.gguf").string(), "q8_0"}), {"absent"}));
  EXPECT_EQ(n_files(), 0u);
}

TEST_F(QuantizeCommandTest, wrong_usage_lists_the_types) {
  const ProcessResult type = zinc({"quantize", kModel, output(), "q4_z"});
  EXPECT_EQ(type.exit_code, 2);
  EXPECT_TRUE(contains_all(type.err, {"'q4_z'", "q4_k_m (4.5)", "iq1_s"})) << type.err;
  const ProcessResult format = zinc({"quantize", kModel, output(), "q8_0", "--tensor", "ffn=q4_k_m"});
  EXPECT_EQ(format.exit_code, 2);
  EXPECT_TRUE(contains_all(format.err, {"'q4_k_m' is not a type", "q8_0 (8.5)"})) << format.err;
  EXPECT_EQ(zinc({"quantize", kModel, output(), "q8_0", "--tensor", "q4_k"}).exit_code, 2);
  EXPECT_EQ(zinc({"quantize", kModel, output()}).exit_code, 2);
  const ProcessResult foreign = zinc({"quantize", kModel, output(), "q8_0", "--pure"});
  EXPECT_EQ(foreign.exit_code, 2);
  EXPECT_TRUE(contains_all(foreign.err, {"--pure", "--tensor '.=TYPE'"})) << foreign.err;
}

TEST_F(QuantizeCommandTest, interrupted_leaves_nothing) {
  const std::string model = sparse_model(1 << 19, 2048);  // 2 GB
  for (const double seconds : {0.3, 1.0}) {
    const ProcessResult end =
        shell(fmt::format("timeout --foreground --preserve-status -s INT {} $ZINC quantize {} {} q8_0 --force", seconds,
                          model, output()));
    if (end.exit_code == 0) continue;  // it was done
    EXPECT_EQ(end.exit_code, 130) << end.err;
    EXPECT_TRUE(contains_all(end.err, {"interrupted; nothing was written"})) << end.err;
    EXPECT_EQ(n_files(), 0u);
    return;
  }
  FAIL() << "2 GB were quantized in a second";
}

TEST_F(QuantizeCommandTest, disk_space_is_checked_before) {
  const std::string model = sparse_model(1 << 22, 1 << 20);  // 8 TB
  if (model.empty()) GTEST_SKIP() << "the file system has no sparse files of this size";
  EXPECT_TRUE(contains_all(refusal({"quantize", model, output(), "q8_0"}), {"not enough disk space", "needed"}));
}

}  // namespace
}  // namespace zinc
