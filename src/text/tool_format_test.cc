#include "text/tool_format.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "base/json.h"

namespace zinc {
namespace {

const std::filesystem::path kOracle = ZINC_SOURCE_DIR "/../shared/oracle/templates";

std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

TEST(ToolFormat, names_are_found_and_unique) {
  std::set<std::string_view> names;
  for (const ToolFormat* const* f = kToolFormats; *f; ++f) {
    EXPECT_TRUE(names.insert((*f)->name).second) << (*f)->name;
    EXPECT_EQ(find_tool_format((*f)->name), *f);
    EXPECT_EQ((*f)->thinking.open.empty(), (*f)->thinking.close.empty()) << (*f)->name;
  }
  EXPECT_EQ(find_tool_format("qwen"), nullptr);
  EXPECT_NE(tool_format_names().find("gpt-oss, "), std::string::npos);
}

TEST(ToolFormat, format_is_detected_from_template_markers) {
  const auto detect = [](std::string_view text) { return detect_tool_format(text, "llama").name; };
  EXPECT_EQ(detect("<tool_call>{\"name\": n, \"arguments\": a}</tool_call>"), "qwen3");
  EXPECT_EQ(detect("<tool_call><function=f><parameter=p>"), "qwen3-coder");
  EXPECT_EQ(detect("<think><tool_call><function=f><parameter=p>"), "qwen3.5");
  EXPECT_EQ(detect("<|start|>assistant<|channel|>final<|message|>"), "gpt-oss");
  EXPECT_EQ(detect("<|start_header_id|> {\"name\": n, \"parameters\": p}"), "llama3");
  EXPECT_EQ(detect("<|tool_call>call:<tool_call|>"), "gemma4");
  EXPECT_EQ(detect("[TOOL_CALLS] [{"), "mistral-nemo");
  EXPECT_EQ(detect("[TOOL_CALLS]name[ARGS]"), "mistral-small-3.2");
  EXPECT_EQ(detect("<｜tool▁calls▁begin｜>function<｜tool▁sep｜>f```json"), "deepseek-r1-distill");
  EXPECT_EQ(detect("<tool_call>name<arg_key>k</arg_key>arguments"), "plain");
  EXPECT_EQ(detect("<|im_start|>"), "plain");
}

TEST(ToolFormat, architecture_is_used_only_without_a_template) {
  EXPECT_EQ(detect_tool_format("", "gpt-oss").name, "gpt-oss");
  EXPECT_EQ(detect_tool_format("<|im_start|>", "gpt-oss").name, "plain");
  EXPECT_EQ(detect_tool_format("", "").name, "plain");
}

TEST(ToolFormat, every_oracle_template_is_recognized) {
  if (!std::filesystem::exists(kOracle)) {
    fmt::print("oracle absent: templates not checked\n");
    return;
  }
  const std::pair<const char*, const char*> kExpected[] = {
      {"deepseek-r1-distill", "deepseek-r1-distill"},
      {"gemma3", "plain"},
      {"gemma4", "gemma4"},
      {"gpt-oss", "gpt-oss"},
      {"llama3.1", "llama3"},
      {"llama3.2", "llama3"},
      {"mistral-nemo", "mistral-nemo"},
      {"mistral-nemo-old", "mistral-nemo"},
      {"mistral-small-3.2", "mistral-small-3.2"},
      {"qwen3", "qwen3"},
      {"qwen3-coder", "qwen3-coder"},
      {"qwen3.5", "qwen3.5"},
      {"smollm2", "plain"},
  };
  for (const auto& [family, format] : kExpected) {
    const std::string source = read_text(kOracle / family / "template.jinja");
    ASSERT_FALSE(source.empty()) << family;
    EXPECT_EQ(detect_tool_format(source, "").name, format) << family;
  }
}

// The oracle's rendered prompts agree with reasoning_starts_open.
TEST(ToolFormat, prompts_open_reasoning_as_the_format_says) {
  EXPECT_TRUE(prompt_opens_reasoning(*find_tool_format("qwen3.5"), "<|im_start|>assistant\n<think>\n"));
  EXPECT_FALSE(prompt_opens_reasoning(*find_tool_format("qwen3.5"), "assistant\n<think>\n\n</think>\n\n"));
  EXPECT_FALSE(prompt_opens_reasoning(*find_tool_format("mistral-nemo"), ""));
  if (!std::filesystem::exists(kOracle)) return;
  for (const char* family : {"qwen3", "qwen3.5", "gemma4", "gpt-oss", "deepseek-r1-distill"}) {
    const ToolFormat& format = *find_tool_format(family);
    const Result<json::value> cases = parse_json(read_text(kOracle / family / "cases.json"));
    ASSERT_TRUE(cases.ok()) << family;
    int n_checked = 0;
    for (const json::value& item : cases.value().get_array()) {
      const json::object& c = item.get_object();
      const json::value* prompt = c.if_contains("expected");
      const std::string name(c.at("name").get_string());
      // After tool results the DeepSeek template opens no turn at all.
      const bool is_new_turn = name == "single user" || name == "system, three turns" || name == "unicode in content";
      if (!prompt || !is_new_turn || !c.at("add_generation_prompt").get_bool()) continue;
      EXPECT_EQ(prompt_opens_reasoning(format, prompt->get_string()), format.reasoning_starts_open) << family << name;
      ++n_checked;
    }
    EXPECT_GT(n_checked, 0) << family;
  }
}

}  // namespace
}  // namespace zinc
