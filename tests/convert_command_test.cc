// `zinc convert` as a black box: the converted file runs, a dry run writes nothing, nothing is overwritten or left
// behind.
#include <filesystem>

#include "tests/support/contains_all.h"
#include "tests/support/program_fixture.h"

namespace zinc {
namespace {

const std::string kCheckpoint = ZINC_SOURCE_DIR "/tests/data/convert/qwen2";

using ConvertCommandTest = ProgramFixture;

TEST_F(ConvertCommandTest, converted_file_is_read_by_other_commands) {
  const TestFolder folder;
  const std::string output = folder / "out.gguf";
  const ProcessResult converted = zinc({"convert", kCheckpoint, output, "--type", "q8_0"});
  ASSERT_EQ(converted.exit_code, 0) << converted.err;
  EXPECT_TRUE(contains_all(converted.out, {"out.gguf: qwen2, 26 tensors"})) << converted.out;
  EXPECT_EQ(converted.err, "");
  EXPECT_TRUE(contains_all(zinc({"inspect", output}).out, {"qwen2", "q8_0"}));
  EXPECT_EQ(zinc({"debug", "eval", output, "--tokens", "5,6,7", "--backend", "reference"}).exit_code, 0);
}

TEST_F(ConvertCommandTest, dry_run_prints_the_exact_size_and_writes_nothing) {
  const TestFolder folder;
  const std::string output = folder / "out.gguf";
  const ProcessResult plan = zinc({"convert", kCheckpoint, output, "--dry-run"});
  ASSERT_EQ(plan.exit_code, 0) << plan.err;
  EXPECT_FALSE(std::filesystem::exists(output));
  ASSERT_EQ(zinc({"convert", kCheckpoint, output}).exit_code, 0);
  const std::string n_bytes = fmt::format("({} bytes)", std::filesystem::file_size(output));
  EXPECT_TRUE(contains_all(plan.out, {"bf16  [320,32]         token_embd.weight", "26 tensors", n_bytes})) << plan.out;
  EXPECT_EQ(zinc({"convert", kCheckpoint, "--dry-run"}).out, plan.out);
}

TEST_F(ConvertCommandTest, existing_file_is_replaced_only_with_force) {
  const TestFolder folder;
  const std::string output = put(folder / "out.gguf", "mine");
  const ProcessResult refused = zinc({"convert", kCheckpoint, output});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_TRUE(contains_all(refused.err, {"already exists", "--force"})) << refused.err;
  EXPECT_EQ(contents(output), "mine");
  EXPECT_EQ(zinc({"convert", kCheckpoint, output, "--force"}).exit_code, 0);
  EXPECT_TRUE(contents(output).starts_with("GGUF"));
}

TEST_F(ConvertCommandTest, errors_say_what_is_wrong_and_leave_nothing) {
  const TestFolder folder;
  const std::string output = folder / "out.gguf";
  const ProcessResult absent = zinc({"convert", folder / "absent", output});
  EXPECT_EQ(absent.exit_code, 1);
  EXPECT_TRUE(contains_all(absent.err, {"absent/config.json"})) << absent.err;
  const ProcessResult type = zinc({"convert", kCheckpoint, output, "--type", "q4_k"});
  EXPECT_EQ(type.exit_code, 2);
  EXPECT_TRUE(contains_all(type.err, {"'q4_k'", "f32, f16, bf16, q8_0"})) << type.err;
  EXPECT_EQ(zinc({"convert", kCheckpoint}).exit_code, 2);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

}  // namespace
}  // namespace zinc
