// zinc graph as a user runs it, on a tiny file made here.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>

#include "base/json.h"
#include "tests/support/contains_all.h"
#include "tests/support/dot_checks.h"
#include "tests/support/test_files.h"
#include "tests/support/tiny_llama.h"

namespace zinc {
namespace {

struct Outcome {
  int exit_code = -1;
  std::string text;  // stdout and stderr
};

class GraphCommand : public testing::Test {
 protected:
  GraphCommand() { TinyLlama{}.file().write(path_); }

  Outcome graph(const std::string& arguments) const { return run(path_.string() + " " + arguments); }
  static Outcome run(const std::string& arguments) {
    const std::string command = std::string(ZINC_PROGRAM) + " graph " + arguments + " 2>&1";
    FILE* pipe = popen(command.c_str(), "r");
    Outcome outcome;
    std::array<char, 4096> buffer;
    while (const size_t n = fread(buffer.data(), 1, buffer.size(), pipe)) outcome.text.append(buffer.data(), n);
    outcome.exit_code = WEXITSTATUS(pclose(pipe));
    return outcome;
  }

  const TestFolder folder_;
  const std::filesystem::path path_ = folder_ / "model.gguf";
};

TEST_F(GraphCommand, prints_costs_by_default) {
  const Outcome outcome = graph("");
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_TRUE(contains_all(outcome.text, {"(llama)", "tokens 1, sequences 1, depth 0",
                                          "KV cache per token           128 bytes", "tokens/s, upper bound"}));
  EXPECT_EQ(graph("--cost --bandwidth 50 --flops 500").text, graph("--bandwidth 50 --flops 500").text);
}

TEST_F(GraphCommand, options_set_step_and_device) {
  const Outcome outcome = graph("--json --tokens 6 --sequences 2 --depth 100 --bandwidth 576 --flops 48000 --kv f32");
  ASSERT_EQ(outcome.exit_code, 0);
  const json::value report = parse_json(outcome.text).value();
  EXPECT_EQ(report.at("step"), json::parse(R"({"n_tokens":6,"n_seqs":2,"depth":100,"kv_format":"f32"})"));
  EXPECT_EQ(report.at("device").at("bytes_per_s").to_number<double>(), 576e9);
  EXPECT_EQ(report.at("device").at("flops_per_s").to_number<double>(), 48e12);
  EXPECT_EQ(report.at("memory").at("kv_bytes_per_token").to_number<int>(), 256);
}

TEST_F(GraphCommand, peaks_are_measured_unless_given) {
  const json::value report = parse_json(graph("--json").text).value();
  EXPECT_GT(report.at("device").at("bytes_per_s").to_number<double>(), 1e8);
  EXPECT_NE(report.at("device").at("bytes_per_s").to_number<double>(), 100e9) << "an assumed figure";
}

TEST_F(GraphCommand, prints_dot) {
  const Outcome plain = graph("--dot"), weights = graph("--dot --weights");
  EXPECT_EQ(read_dot(plain.text).error, "");
  EXPECT_EQ(read_dot(weights.text).error, "");
  EXPECT_GT(read_dot(weights.text).nodes.size(), read_dot(plain.text).nodes.size());
}

TEST_F(GraphCommand, lists_the_kernels_of_a_step_on_a_gpu_that_need_not_be_present) {
  const Outcome decode = graph("--kernels"), prefill = graph("--kernels --rows 64");
  EXPECT_EQ(decode.exit_code, 0) << decode.text;
  EXPECT_TRUE(
      contains_all(decode.text, {"H200: 4.80 TB/s", "gemv", "attention_decode", "132 x 1 x 1 blocks", "launches"}));
  EXPECT_TRUE(contains_all(prefill.text, {"attention_prefill", "gemm"}));
  EXPECT_TRUE(
      contains_all(graph("--kernels --device cuda:a100").text, {"A100: 2.00 TB/s", "gemv", "attention_decode"}));
  const json::value report = parse_json(graph("--kernels --json --device vulkan:h200 --bandwidth 1").text).value();
  EXPECT_EQ(report.at("device").at("bytes_per_s").to_number<double>(), 1e9);
  double time_s = 0;
  for (const json::value& kernel : report.at("kernels").as_array()) {
    EXPECT_FALSE(kernel.at("launches").as_array().empty());
    time_s += kernel.at("time_s").to_number<double>();
  }
  EXPECT_NEAR(report.at("total").at("time_s").to_number<double>(), time_s, 1e-9);
  const Outcome unknown = graph("--kernels --device cuda:h300");
  EXPECT_EQ(unknown.exit_code, 1);
  EXPECT_TRUE(contains_all(unknown.text, {"unknown GPU 'h300'", "cuda:rtx4090"}));
  EXPECT_TRUE(contains_all(graph("--kernels --device cpu").text, {"not for GPUs"}));
}

TEST_F(GraphCommand, wrong_usage_exits_with_two) {
  for (const char* wrong : {"--json --dot", "--tokens 0", "--tokens x", "--depth -1", "--bandwidth 0", "--flops nan",
                            "--tokens 99999999999999999999", "--kv q9"}) {
    EXPECT_EQ(graph(wrong).exit_code, 2) << wrong;
  }
}

TEST_F(GraphCommand, unsupported_request_is_one_line_and_exit_code_1) {
  EXPECT_TRUE(contains_all(graph("--draft").text, {"no draft"}));
  EXPECT_TRUE(contains_all(graph("--tokens 1 --sequences 2").text, {"--tokens 1", "--sequences 2"}));
  EXPECT_TRUE(contains_all(graph("--kv q8_0").text, {"q8_0", "32", "use f16"}));  // heads of 8
  EXPECT_TRUE(contains_all(graph("--kv fp8_e4m3").text, {"fp8", "32"}));
  for (const char* wrong : {"--draft", "--kv q8_0", "--tokens 1 --sequences 2"}) {
    const Outcome outcome = graph(wrong);
    EXPECT_EQ(outcome.exit_code, 1) << wrong;
    EXPECT_EQ(std::count(outcome.text.begin(), outcome.text.end(), '\n'), 1) << outcome.text;
  }
  EXPECT_EQ(run("absent.gguf").exit_code, 1);
}

}  // namespace
}  // namespace zinc
