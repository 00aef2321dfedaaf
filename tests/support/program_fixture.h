// The program as a black box, for tests: runs it with arguments or in a shell, in a folder of its own.
#pragma once

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/subprocess.h"
#include "tests/support/test_files.h"

namespace zinc {

using Arguments = std::vector<std::string>;

inline const std::string kModel = ZINC_SOURCE_DIR "/tests/data/oracle/models/qwen2-f16.gguf";

inline std::string text_of(const Arguments& arguments) {
  std::string text = "zinc";
  for (const std::string& argument : arguments) text += " " + argument;
  return text;
}

class ProgramFixture : public testing::Test {
 protected:
  ProcessResult zinc(const Arguments& arguments) const {
    Arguments argv = {ZINC_PROGRAM};
    argv.insert(argv.end(), arguments.begin(), arguments.end());
    return run_to_the_end({.argv = argv});
  }

  // A shell's command line, where $ZINC is the program and $MODEL a tiny model that never ends its answer.
  ProcessResult shell(const std::string& line) const {
    const ProcessResult end =
        run_to_the_end({.argv = {"sh", "-c", line}, .environment = {{"ZINC", ZINC_PROGRAM}, {"MODEL", kModel}}});
    EXPECT_FALSE(end.timed_out) << line;
    return end;
  }

  // The result of `command` after a Ctrl-C that arrives once its model is loaded and `n_wanted_bytes` are printed; on a
  // busy machine that takes longer.
  // --foreground: else timeout signals the program and then its process group, and a second Ctrl-C ends it at once.
  ProcessResult interrupt(const std::string& before, const std::string& command, size_t n_wanted_bytes = 1) const {
    ProcessResult end;
    for (const double seconds : {1.5, 5.0, 20.0, 50.0}) {
      end = shell(fmt::format("{}timeout --foreground --preserve-status -s INT {} {}", before, seconds, command));
      if (end.out.size() >= n_wanted_bytes) break;
    }
    return end;
  }

  ProcessResult run_to_the_end(Process process) const {
    process.folder = folder_.path();
    process.time_limit = std::chrono::seconds(120);
    const Result<ProcessResult> end = run_process(process);
    EXPECT_TRUE(end.ok()) << end.error().message;
    return end.ok() ? end.value() : ProcessResult{.exit_code = -1};
  }

  // The report of `zinc run $MODEL <words> --json`.
  json::object report(const std::string& words) const {
    const ProcessResult end = shell("$ZINC run $MODEL --temp 0 " + words + " --json");
    EXPECT_EQ(end.exit_code, 0) << words << ": " << end.err;
    const Result<json::value> value = parse_json(end.out);
    EXPECT_TRUE(value.ok()) << end.out;
    return value.ok() ? value.value().as_object() : json::object{};
  }

  std::string file(std::string_view name, std::string_view bytes) const { return put(folder_ / name, bytes).string(); }

  // Runs it and expects exit code 1 with one line; returns the line.
  std::string refusal(const Arguments& arguments) const {
    const ProcessResult end = zinc(arguments);
    EXPECT_EQ(end.exit_code, 1) << text_of(arguments);
    EXPECT_FALSE(end.timed_out) << text_of(arguments);
    EXPECT_EQ(end.out, "") << text_of(arguments);
    EXPECT_EQ(end.err.rfind("zinc: ", 0), 0u) << text_of(arguments) << ": " << end.err;
    EXPECT_EQ(end.err.find('\n'), end.err.size() - 1) << text_of(arguments) << ": " << end.err;
    return end.err;
  }

  const TestFolder folder_;
};

}  // namespace zinc
