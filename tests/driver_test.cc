// Error messages and exit codes when a GPU is requested but NVIDIA's driver or compiler fails; the libraries are
// tests/driver's. The program never falls back to another device.
#include <gtest/gtest.h>

#include "base/subprocess.h"
#include "tests/support/test_files.h"

namespace zinc {
namespace {

const std::string kModel = ZINC_SOURCE_DIR "/tests/data/oracle/models/qwen2-f16.gguf";

class DriverTest : public testing::Test {
 protected:
  ProcessResult zinc(const std::string& broken, std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), ZINC_PROGRAM);
    const Result<ProcessResult> end = run_process({.argv = arguments,
                                                   .environment = {{"LD_LIBRARY_PATH", ZINC_BROKEN_DRIVER},
                                                                   {"XDG_CACHE_HOME", folder_.path().string()},
                                                                   {"BROKEN", broken}},
                                                   .time_limit = std::chrono::seconds(60)});
    EXPECT_TRUE(end.ok());
    return end.ok() ? end.value() : ProcessResult{.exit_code = -1};
  }

  // Every command that uses a device prints one line with the error and exits with code 1.
  void expect_error(const std::string& broken, const std::string& device, const std::string& message) const {
    for (const std::vector<std::string>& command : {std::vector<std::string>{"run", kModel, "hello", "-n", "2"},
                                                    {"bench", kModel, "-p", "4", "-n", "2", "-r", "1"},
                                                    {"serve", kModel, "--port", "0"},
                                                    {"debug", "eval", kModel, "--tokens", "1,2"}}) {
      std::vector<std::string> arguments = command;
      arguments.insert(arguments.end(), {"--backend", device});
      const ProcessResult end = zinc(broken, arguments);
      EXPECT_FALSE(end.timed_out);
      EXPECT_EQ(end.exit_code, 1) << command[0] << ": " << end.err;
      EXPECT_EQ(end.out, "") << command[0];
      EXPECT_EQ(end.err.find('\n'), end.err.size() - 1) << command[0] << ": " << end.err;
      EXPECT_EQ(end.err.find("\\n"), std::string::npos) << command[0] << ": " << end.err;
      EXPECT_NE(end.err.find(message), std::string::npos) << command[0] << ": " << end.err;
    }
  }

  const TestFolder folder_;
};

TEST_F(DriverTest, a_driver_without_a_gpu_is_an_error_with_the_drivers_message) {
  expect_error("gpu", "cuda",
               "the NVIDIA driver found no usable GPU: no CUDA-capable device is detected (error 100); see nvidia-smi");
}

TEST_F(DriverTest, a_driver_that_is_too_old_is_an_error_with_the_required_version) {
  expect_error("driver", "cuda", "it supports CUDA 11.2, but 12.0 or newer is needed (driver 525 or later)");
}

TEST_F(DriverTest, a_gpu_that_is_too_old_is_rejected_by_name) {
  expect_error("old gpu", "cuda", "Broken GPU has compute capability 6.0; 7.5 (Turing, 2018) or newer is needed");
}

TEST_F(DriverTest, a_gpu_that_does_not_exist_is_rejected_by_number) {
  expect_error("", "cuda:3", "GPU 3 does not exist: 1 found, numbered from 0");
}

TEST_F(DriverTest, a_gpu_can_be_used_as_an_older_one_but_not_as_a_newer_one) {
  const std::string newer = "Broken GPU (compute capability 8.0) cannot be used as a GPU of compute capability 9.0";
  expect_error("", "cuda:0@9.0", newer);
  expect_error("", "cuda:0@6.1", "choose an older one, from 7.5 on");
  expect_error("", "cuda:0@8", "invalid device 'cuda:0@8'");
}

TEST_F(DriverTest, a_second_gpu_is_used_if_its_number_is_given) {
  const ProcessResult end = zinc("none of two", {"run", kModel, "hello", "-n", "2", "--verbose", "--device", "cuda:1"});
  EXPECT_NE(end.err.find("backend cuda, device Second GPU (as requested)"), std::string::npos) << end.err;
  const ProcessResult check = zinc("none of two", {"check", kModel});
  EXPECT_NE(check.out.find("OK   cuda 1       Second GPU"), std::string::npos) << check.out;
}

TEST_F(DriverTest, a_compiler_that_is_too_old_is_an_error_with_the_required_version) {
  expect_error("compiler", "cuda", "libnvrtc is too old (11.0); 12.0 or newer is needed");
}

TEST_F(DriverTest, a_kernel_that_does_not_compile_is_an_error_with_the_compilers_log) {
  expect_error("kernel", "cuda", "a GPU kernel failed to compile for sm_80 with NVRTC 13.0");
  expect_error("kernel", "cuda", "identifier is undefined");
}

TEST_F(DriverTest, out_of_memory_is_an_error_that_names_the_device_and_a_remedy) {
  expect_error("memory", "cuda", "Broken GPU");
  expect_error("memory", "cuda", "use a smaller model");
}

TEST_F(DriverTest, commands_that_do_not_use_the_gpu_do_not_open_it) {
  for (const std::vector<std::string>& command : {std::vector<std::string>{"--help"},
                                                  {"run", "--help"},
                                                  {"graph", kModel, "--bandwidth", "100", "--flops", "1000"},
                                                  {"run", kModel, "hello", "-n", "2", "--device", "cpu"}}) {
    const ProcessResult end = zinc("touched", command);
    EXPECT_EQ(end.exit_code, 0) << command[0] << ": " << end.err;
  }
}

TEST_F(DriverTest, the_chosen_device_and_the_reason_are_printed) {
  const ProcessResult end = zinc("driver", {"run", kModel, "hello", "-n", "2", "--verbose", "--device", "auto"});
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_NE(end.err.find("backend cpu"), std::string::npos) << end.err;
  EXPECT_NE(end.err.find("(not available: cuda (the NVIDIA driver is too old"), std::string::npos) << end.err;
  const ProcessResult requested = zinc("driver", {"run", kModel, "hello", "-n", "2", "--verbose", "--device", "cpu"});
  EXPECT_NE(requested.err.find("(as requested)"), std::string::npos) << requested.err;
  const ProcessResult check = zinc("driver", {"check", kModel});
  EXPECT_NE(check.out.find("the NVIDIA driver is too old"), std::string::npos) << check.out;
  const ProcessResult compiler = zinc("compiler", {"run", kModel, "hello", "-n", "2", "--verbose"});
  EXPECT_NE(compiler.err.find("(not available: cuda (libnvrtc is too old"), std::string::npos) << compiler.err;
  EXPECT_NE(zinc("compiler", {"check", kModel}).out.find("SKIP cuda         not available: libnvrtc is too old"),
            std::string::npos);
}

}  // namespace
}  // namespace zinc
