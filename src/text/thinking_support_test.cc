#include "text/thinking_support.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/mapped_file.h"

namespace zinc {
namespace {

using Kind = ThinkingSupport::Kind;

ChatTemplate compile(std::string_view source) { return ChatTemplate::compile(source).value(); }

ChatTemplate template_of(std::string_view family) {
  const Result<MappedFile> opened =
      MappedFile::open(std::filesystem::path(ZINC_SOURCE_DIR) / "tests/data/templates" / family / "template.jinja");
  const MappedFile& file = opened.value();
  return compile({reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()});
}

// The last lines of published templates.
constexpr std::string_view kQwen35 =
    "{{ messages[0].content }}{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n"
    "{% else %}<think>\n{% endif %}";
constexpr std::string_view kGemma4 =
    "{% if enable_thinking is defined and enable_thinking %}<|think|>\n{% endif %}{{ messages[0].content }}"
    "{% if not enable_thinking | default(false) %}<|channel>thought\n<channel|>{% endif %}";
constexpr std::string_view kSmolLm3 =
    "{% if enable_thinking is not defined %}{% set enable_thinking = true %}{% endif %}"
    "Reasoning Mode: {{ '/think' if enable_thinking else '/no_think' }}{{ messages[0].content }}";
constexpr std::string_view kDeepSeekV31 =
    "{% if not thinking is defined %}{% set thinking = false %}{% endif %}{{ messages[0].content }}"
    "{% if thinking %}<think>{% else %}</think>{% endif %}";
constexpr std::string_view kDeepSeekR1 = "{{ messages[0].content }}<think>\n";
constexpr std::string_view kMistral =
    "{% set effort = reasoning_effort | default('none') %}{% if effort not in ['none', 'high'] %}"
    "{{ raise_exception('reasoning_effort must be none or high') }}{% endif %}{{ effort }}{{ messages[0].content }}";

std::string render(const ChatTemplate& chat, const ThinkingSupport& support, const ThinkingMode& mode) {
  ChatTemplateInputs inputs;
  inputs.messages = json::array{json::object{{"role", "user"}, {"content", "hi"}}};
  support.set_variables(mode, inputs.kwargs);
  return chat.render(inputs).value().text();
}

TEST(ThinkingSupport, each_family_offers_its_modes) {
  const struct {
    ChatTemplate chat;
    const char* format;
    Kind kind;
    const char* default_mode;
  } cases[] = {
      {template_of("qwen3"), "qwen3", Kind::toggle, "on"},        {compile(kQwen35), "qwen3.5", Kind::toggle, "on"},
      {compile(kGemma4), "gemma4", Kind::toggle, "off"},          {compile(kSmolLm3), "plain", Kind::toggle, "on"},
      {compile(kDeepSeekV31), "plain", Kind::toggle, "off"},      {compile(kDeepSeekR1), "plain", Kind::toggle, "on"},
      {template_of("gpt-oss"), "gpt-oss", Kind::effort, "medium"}};
  for (const auto& test : cases) {
    const ThinkingSupport support = ThinkingSupport::detect(test.chat, *find_tool_format(test.format));
    EXPECT_EQ(support.kind, test.kind) << test.format;
    EXPECT_EQ(support.default_mode, test.default_mode) << test.format;
    EXPECT_TRUE(support.has_budget) << test.format;
    EXPECT_EQ(support.can_disable, test.kind == Kind::toggle) << test.format;
  }
  EXPECT_EQ(ThinkingSupport::detect(ChatTemplate::chatml(), k_tool_format_plain).kind, Kind::none);
}

TEST(ThinkingSupport, gpt_oss_without_thinking_gets_its_lowest_effort) {
  const ChatTemplate chat = template_of("gpt-oss");
  const ThinkingSupport support = ThinkingSupport::detect(chat, *find_tool_format("gpt-oss"));
  EXPECT_EQ(support.efforts, (std::vector<std::string>{"low", "medium", "high"}));
  const auto has = [&](const ThinkingMode& mode, std::string_view line) {
    return render(chat, support, mode).find(line) != std::string::npos;
  };
  EXPECT_TRUE(has({}, "Reasoning: medium"));
  EXPECT_TRUE(has({.is_on = false}, "Reasoning: low"));
  EXPECT_TRUE(has({.is_on = true}, "Reasoning: medium"));
  EXPECT_TRUE(has({.is_on = true, .effort = "minimal"}, "Reasoning: low"));
  EXPECT_TRUE(has({.is_on = true, .effort = "high"}, "Reasoning: high"));
  EXPECT_TRUE(has({.is_on = true, .effort = "max"}, "Reasoning: high"));
}

TEST(ThinkingSupport, effort_none_of_a_template_switches_thinking_off) {
  const ChatTemplate chat = compile(kMistral);
  const ThinkingSupport support = ThinkingSupport::detect(chat, k_tool_format_plain);
  EXPECT_EQ(support.kind, Kind::effort);
  EXPECT_TRUE(support.can_disable);
  EXPECT_EQ(support.efforts, std::vector<std::string>{"high"});
  EXPECT_EQ(render(chat, support, {.is_on = false}), "nonehi");
  EXPECT_EQ(render(chat, support, {.is_on = true, .effort = "low"}), "highhi");
}

TEST(ThinkingSupport, gemma4_is_switched_on) {
  const ChatTemplate chat = compile(kGemma4);
  const ThinkingSupport support = ThinkingSupport::detect(chat, *find_tool_format("gemma4"));
  EXPECT_EQ(render(chat, support, {.is_on = true}), "<|think|>\nhi");
  EXPECT_EQ(render(chat, support, {}), "hi<|channel>thought\n<channel|>");
}

TEST(ThinkingSupport, effort_of_the_request_template_variables_is_kept) {
  const ThinkingSupport support = ThinkingSupport::detect(template_of("gpt-oss"), *find_tool_format("gpt-oss"));
  json::object variables{{"reasoning_effort", "brief"}};
  support.set_variables({.is_on = false}, variables);
  EXPECT_EQ(variables.at("reasoning_effort").get_string(), "brief");
}

TEST(ThinkingSupport, reasoning_that_the_template_opens_is_closed) {
  RenderedPrompt prompt;
  prompt.append("hi", /*from_input=*/true);
  prompt.append("<think>\n", /*from_input=*/false);
  close_open_reasoning(k_tool_format_plain, prompt);
  EXPECT_EQ(prompt.text(), "hi<think>\n\n</think>\n\n");
  EXPECT_EQ(prompt.segments.size(), 2u);
}

}  // namespace
}  // namespace zinc
