#include "base/subprocess.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>

#include "base/deferred_sigint.h"

namespace zinc {
namespace {

using std::chrono::milliseconds;

Process shell(std::string script) { return {.argv = {"sh", "-c", std::move(script)}}; }

ProcessResult must_run(const Process& process) {
  Result<ProcessResult> end = run_process(process);
  EXPECT_TRUE(end.ok()) << end.error().message;
  return end.ok() ? end.value() : ProcessResult{.exit_code = -1};
}

TEST(Subprocess, captures_both_streams_and_the_exit_code) {
  const ProcessResult end = must_run(shell("echo to out; echo to err >&2; exit 3"));
  EXPECT_EQ(end.out, "to out\n");
  EXPECT_EQ(end.err, "to err\n");
  EXPECT_EQ(end.exit_code, 3);
}

TEST(Subprocess, arguments_are_passed_unchanged) {
  const ProcessResult end = must_run({.argv = {"printf", "%s|", "a b", "$HOME", "'", "", "*"}});
  EXPECT_EQ(end.out, "a b|$HOME|'||*|");
}

TEST(Subprocess, more_output_than_a_pipe_holds_does_not_block) {
  const ProcessResult end = must_run(shell("head -c 300000 /dev/zero; head -c 200000 /dev/zero >&2"));
  EXPECT_EQ(end.out.size(), 300000u);
  EXPECT_EQ(end.err.size(), 200000u);
}

TEST(Subprocess, standard_input_is_empty) { EXPECT_EQ(must_run(shell("cat; echo end")).out, "end\n"); }

TEST(Subprocess, folder_and_environment_are_set_for_the_child_only) {
  Process process = shell("pwd; echo $ZINC_TEST_NAME; echo ${PATH:+path is kept}");
  process.folder = "/";
  process.environment = {{"ZINC_TEST_NAME", "first"}, {"ZINC_TEST_NAME2", "second"}};
  EXPECT_EQ(must_run(process).out, "/\nfirst\npath is kept\n");
  EXPECT_EQ(must_run(shell("echo $ZINC_TEST_NAME")).out, "\n");
}

TEST(Subprocess, a_program_that_does_not_exist_is_not_found_by_name) {
  const Result<ProcessResult> end = run_process({.argv = {"zinc-no-such-program"}});
  ASSERT_FALSE(end.ok());
  EXPECT_EQ(end.error().code, ErrorCode::not_found);
  EXPECT_NE(end.error().message.find("zinc-no-such-program"), std::string::npos);
}

TEST(Subprocess, exit_code_reports_a_signal) { EXPECT_EQ(must_run(shell("kill -KILL $$")).exit_code, 128 + SIGKILL); }

TEST(Subprocess, a_child_over_its_time_limit_is_killed) {
  Process process{.argv = {"sleep", "100"}};
  process.time_limit = milliseconds(50);
  const auto started = std::chrono::steady_clock::now();
  const ProcessResult end = must_run(process);
  EXPECT_TRUE(end.timed_out);
  EXPECT_EQ(end.exit_code, 128 + SIGKILL);
  EXPECT_LT(std::chrono::steady_clock::now() - started, std::chrono::seconds(90));
}

TEST(Subprocess, cancelled_child_is_terminated) {
  Process process = shell("exec sleep 100");
  process.cancelled = [] { return true; };
  const auto started = std::chrono::steady_clock::now();
  EXPECT_EQ(must_run(process).exit_code, 128 + SIGTERM);
  EXPECT_LT(std::chrono::steady_clock::now() - started, std::chrono::seconds(90));
}

TEST(Subprocess, a_grandchild_that_keeps_the_pipe_open_is_not_waited_for) {
  const auto started = std::chrono::steady_clock::now();
  const ProcessResult end = must_run(shell("sleep 100 & echo $!"));
  EXPECT_EQ(end.exit_code, 0);
  EXPECT_LT(std::chrono::steady_clock::now() - started, std::chrono::seconds(90));
  ::kill(std::stoi(end.out), SIGKILL);
}

TEST(Subprocess, output_to_stderr_leaves_our_standard_output_clean) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  Process process = shell("echo to out; echo to err >&2");
  process.output = ProcessOutput::to_stderr;
  const ProcessResult end = must_run(process);
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "to out\nto err\n");
  EXPECT_EQ(end.out, "");
}

TEST(Subprocess, works_when_our_own_standard_streams_are_closed) {
  EXPECT_EXIT(
      {
        ::close(0);
        ::close(1);
        const Result<ProcessResult> end = run_process(shell("cat; echo out; echo err >&2"));
        ::_exit(end.ok() && end.value().out == "out\n" && end.value().err == "err\n" ? 42 : 1);
      },
      testing::ExitedWithCode(42), "");
}

TEST(Subprocess, deferred_sigint_terminates_the_child_and_is_then_delivered) {
  EXPECT_EXIT(
      {
        const DeferredSigint hold;
        ::raise(SIGINT);
        const Result<ProcessResult> end = run_process({.argv = {"sleep", "60"}});
        const bool ended_early = end.ok() && end.value().exit_code == 128 + SIGTERM;
        fmt::print(stderr, "{}\n", ended_early && sigint_pending() ? "child ended, we still live" : "wrong");
      },
      testing::KilledBySignal(SIGINT), "child ended, we still live");
}

}  // namespace
}  // namespace zinc
