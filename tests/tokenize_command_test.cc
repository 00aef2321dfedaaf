// `zinc debug tokenize` as a black box: JSON lines in, JSON lines out, errors with the line number.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>

#include "tests/support/test_files.h"

namespace zinc {
namespace {

const std::string kModel = ZINC_SOURCE_DIR "/tests/data/tokenizer/qwen2.gguf";

struct Output {
  std::string text;  // stdout and stderr
  int status;
};

Output tokenize(const std::string& model, const std::string& lines) {
  const TestFolder folder;
  const std::filesystem::path input = put(folder / "input.jsonl", lines);
  const std::string command = ZINC_PROGRAM " debug tokenize '" + model + "' < '" + input.string() + "' 2>&1";
  std::FILE* const pipe = popen(command.c_str(), "r");
  Output output{"", -1};
  for (int c = 0; (c = std::fgetc(pipe)) != EOF;) output.text.push_back(static_cast<char>(c));
  output.status = pclose(pipe);
  return output;
}

TEST(TokenizeCommand, each_text_line_becomes_a_line_of_ids) {
  const Output output = tokenize(kModel, "{\"text\": \"a\"}\n{\"bytes_hex\": \"6162\"}\n{\"text\": \"\"}\n");
  EXPECT_EQ(output.text, "{\"ids\":[64]}\n{\"ids\":[64,65]}\n{\"ids\":[]}\n");
  EXPECT_EQ(output.status, 0);
}

TEST(TokenizeCommand, special_tokens_are_parsed_only_on_request) {
  const Output parsed = tokenize(kModel, "{\"text\": \"<|im_end|>\", \"parse_special\": true}\n");
  const Output plain = tokenize(kModel, "{\"text\": \"<|im_end|>\"}\n");
  EXPECT_EQ(std::count(parsed.text.begin(), parsed.text.end(), ','), 0) << parsed.text;
  EXPECT_GT(std::count(plain.text.begin(), plain.text.end(), ','), 3) << plain.text;
}

TEST(TokenizeCommand, invalid_line_is_reported_by_number) {
  for (const std::string bad :
       {"{\"text\": 3}", "[]", "no json", "{\"bytes_hex\": \"6\"}", "{\"text\": \"\", \"add_special\": 1}"}) {
    const Output output = tokenize(kModel, "{\"text\": \"a\"}\n" + bad + "\n");
    EXPECT_NE(output.text.find("line 2"), std::string::npos) << output.text;
    EXPECT_NE(output.status, 0);
  }
}

TEST(TokenizeCommand, invalid_model_file_is_named) {
  const Output output = tokenize(ZINC_SOURCE_DIR "/tests/data/tokenizer/README.md", "");
  EXPECT_NE(output.text.find("README.md"), std::string::npos) << output.text;
  EXPECT_NE(output.status, 0);
}

}  // namespace
}  // namespace zinc
