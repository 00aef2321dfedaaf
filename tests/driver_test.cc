// What the program says, and how it ends, where a GPU was asked for and something of NVIDIA's is broken: the libraries
// it finds are tests/driver's. It never goes on with another device.
#include <gtest/gtest.h>

#include "base/subprocess.h"
#include "tests/support/test_files.h"

namespace zinc {
namespace {

const std::string kModel = ZINC_SOURCE_DIR "/tests/data/oracle/models/qwen2-f16.gguf";

class DriverTest : public testing::Test {
 protected:
  ProcessEnd zinc(const std::string& broken, std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), ZINC_PROGRAM);
    const Result<ProcessEnd> end = run_process({.argv = arguments,
                                                .environment = {{"LD_LIBRARY_PATH", ZINC_BROKEN_DRIVER},
                                                                {"XDG_CACHE_HOME", folder_.path().string()},
                                                                {"BROKEN", broken}},
                                                .time_limit = std::chrono::seconds(60)});
    EXPECT_TRUE(end.ok());
    return end.ok() ? end.value() : ProcessEnd{.exit_code = -1};
  }

  // One line that says so, exit code 1, and nothing else: of every command that computes.
  void expect_refused(const std::string& broken, const std::string& device, const std::string& why) const {
    for (const std::vector<std::string>& command : {std::vector<std::string>{"run", kModel, "hello", "-n", "2"},
                                                    {"bench", kModel, "-p", "4", "-n", "2", "-r", "1"},
                                                    {"serve", kModel, "--port", "0"},
                                                    {"debug", "eval", kModel, "--tokens", "1,2"}}) {
      std::vector<std::string> arguments = command;
      arguments.insert(arguments.end(), {"--backend", device});
      const ProcessEnd end = zinc(broken, arguments);
      EXPECT_FALSE(end.timed_out);
      EXPECT_EQ(end.exit_code, 1) << command[0] << ": " << end.err;
      EXPECT_EQ(end.out, "") << command[0];
      EXPECT_EQ(end.err.find('\n'), end.err.size() - 1) << command[0] << ": " << end.err;
      EXPECT_EQ(end.err.find("\\n"), std::string::npos) << command[0] << ": " << end.err;
      EXPECT_NE(end.err.find(why), std::string::npos) << command[0] << ": " << end.err;
    }
  }

  const TestFolder folder_;
};

TEST_F(DriverTest, a_driver_that_finds_no_gpu_is_an_error_with_what_it_said) {
  expect_refused(
      "gpu", "cuda",
      "the NVIDIA driver found no usable GPU: no CUDA-capable device is detected (error 100); see nvidia-smi");
}

TEST_F(DriverTest, a_driver_that_is_too_old_is_told_which_one_is_needed) {
  expect_refused("driver", "cuda", "it is for CUDA 11.2, 12.0 or newer is needed (driver 525 or later)");
}

TEST_F(DriverTest, a_card_that_is_too_old_is_refused_by_name) {
  expect_refused("card", "cuda", "Broken GPU has compute capability 6.0; 7.5 (Turing, 2018) or newer is needed");
}

TEST_F(DriverTest, a_card_that_is_not_there_is_refused_by_its_number) {
  expect_refused("", "cuda:3", "GPU 3 was asked for, but there are 1, numbered from 0");
}

TEST_F(DriverTest, a_second_card_is_used_where_its_number_is_given) {
  const ProcessEnd end = zinc("none of two", {"run", kModel, "hello", "-n", "2", "--device", "cuda:1"});
  EXPECT_NE(end.err.find("device cuda, Second GPU (as asked for)"), std::string::npos) << end.err;
  const ProcessEnd check = zinc("none of two", {"check", kModel});
  EXPECT_NE(check.out.find("OK   cuda 1       Second GPU"), std::string::npos) << check.out;
}

TEST_F(DriverTest, a_compiler_that_is_too_old_is_told_which_one_is_needed) {
  expect_refused("compiler", "cuda", "libnvrtc is too old (11.0); 12.0 or newer is needed");
}

TEST_F(DriverTest, a_kernel_that_does_not_compile_ends_it_with_the_compilers_words) {
  expect_refused("kernel", "cuda", "a GPU kernel does not compile for sm_80 with NVRTC 13.0");
  expect_refused("kernel", "cuda", "identifier is undefined");
}

TEST_F(DriverTest, memory_that_does_not_suffice_is_told_with_what_for_and_how_much_there_is) {
  expect_refused("memory", "cuda", "Broken GPU");
  expect_refused("memory", "cuda", "take a smaller model");
}

TEST_F(DriverTest, who_computes_nothing_opens_no_gpu) {
  for (const std::vector<std::string>& command : {std::vector<std::string>{"--help"},
                                                  {"run", "--help"},
                                                  {"graph", kModel},
                                                  {"run", kModel, "hello", "-n", "2", "--device", "cpu"}}) {
    const ProcessEnd end = zinc("touched", command);
    EXPECT_EQ(end.exit_code, 0) << command[0] << ": " << end.err;
  }
}

TEST_F(DriverTest, what_was_chosen_and_why_is_printed) {
  const ProcessEnd end = zinc("driver", {"run", kModel, "hello", "-n", "2", "--device", "auto"});
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_NE(end.err.find("device cpu"), std::string::npos) << end.err;
  EXPECT_NE(end.err.find("(not usable here: cuda (the NVIDIA driver is too old"), std::string::npos) << end.err;
  const ProcessEnd asked = zinc("driver", {"run", kModel, "hello", "-n", "2", "--device", "cpu"});
  EXPECT_NE(asked.err.find("(as asked for)"), std::string::npos) << asked.err;
  const ProcessEnd check = zinc("driver", {"check", kModel});
  EXPECT_NE(check.out.find("the NVIDIA driver is too old"), std::string::npos) << check.out;
  const ProcessEnd compiler = zinc("compiler", {"run", kModel, "hello", "-n", "2"});
  EXPECT_NE(compiler.err.find("(not usable here: cuda (libnvrtc is too old"), std::string::npos) << compiler.err;
  EXPECT_NE(zinc("compiler", {"check", kModel}).out.find("SKIP cuda         not usable here: libnvrtc is too old"),
            std::string::npos);
}

}  // namespace
}  // namespace zinc
