#include "chat/render_messages.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "tests/support/contains_all.h"
#include "tests/support/family_model.h"
#include "tests/support/test_files.h"

namespace zinc {
namespace {

// Refuses system messages except the first; `strict`: roles must alternate; `no_system`: no system role at all.
constexpr std::string_view kSystemFirst =
    "{%- for m in messages %}{%- if m.role == 'system' and not loop.first %}{{ raise_exception('System message must be "
    "at the beginning.') }}{%- endif %}[{{ m.role }}:{{ m.content }}]{%- endfor %}";
constexpr std::string_view kAlternating =
    "{%- set ns = namespace(n=0) %}{%- for m in messages %}{%- if m.role == 'system' %}{%- if not loop.first %}"
    "{{ raise_exception('no') }}{%- endif %}{%- else %}{%- if (m.role == 'user') != (ns.n % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{%- endif %}{%- set ns.n = ns.n + 1 %}{%- endif %}"
    "[{{ m.role }}:{{ m.content }}]{%- endfor %}";
constexpr std::string_view kNoSystem =
    "{%- for m in messages %}{%- if m.role == 'system' %}{{ raise_exception('System role not supported') }}{%- endif %}"
    "[{{ m.role }}:{{ m.content }}]{%- endfor %}";
constexpr std::string_view kTakesAll = "{%- for m in messages %}[{{ m.role }}:{{ m.content }}]{%- endfor %}";

class RenderMessagesTest : public testing::Test {
 protected:
  std::string rendered(std::string_view source, const char* messages) {
    const ChatPrompt prompt(ChatTemplate::compile(source).value(), model_.tokenizer);
    ChatTemplateInputs inputs;
    inputs.messages = parse_json(messages).value();
    notes_.clear();
    const Result<RenderedPrompt> result = render_adapted(prompt, std::move(inputs), notes_);
    return result.ok() ? result.value().text() : "error: " + result.error().message;
  }

  const ChatModel model_ = family_model(ZINC_SOURCE_DIR, "qwen3");
  std::vector<std::string> notes_;
};

constexpr const char* kAgent = R"([{"role": "system", "content": "A"}, {"role": "system", "content": "B"},
  {"role": "user", "content": "u"}, {"role": "user", "content": "v"}, {"role": "system", "content": "C"},
  {"role": "assistant", "content": "w"}])";

TEST_F(RenderMessagesTest, template_that_takes_the_messages_is_left_alone) {
  EXPECT_EQ(rendered(kTakesAll, kAgent), "[system:A][system:B][user:u][user:v][system:C][assistant:w]");
  EXPECT_TRUE(notes_.empty());
}

TEST_F(RenderMessagesTest, refused_system_messages_are_joined_at_the_head) {
  EXPECT_EQ(rendered(kSystemFirst, kAgent), "[system:A\n\nB\n\nC][user:u][user:v][assistant:w]");
  ASSERT_EQ(notes_.size(), 1u);
  EXPECT_NE(notes_[0].find("joined at the head"), std::string::npos);
}

TEST_F(RenderMessagesTest, neighbors_of_one_role_are_joined_for_alternating_templates) {
  EXPECT_EQ(rendered(kAlternating, kAgent), "[system:A\n\nB\n\nC][user:u\n\nv][assistant:w]");
  EXPECT_EQ(notes_.size(), 2u);
}

TEST_F(RenderMessagesTest, system_message_becomes_user_text_where_there_is_no_system_role) {
  EXPECT_EQ(rendered(kNoSystem, R"([{"role": "system", "content": "A"}, {"role": "user", "content": "u"}])"),
            "[user:A\n\nu]");
}

// As coding agents send them: instructions between the turns.
TEST_F(RenderMessagesTest, every_family_of_the_oracle_takes_a_system_message_between_turns) {
  const std::filesystem::path oracle = ZINC_SOURCE_DIR "/../shared/oracle/templates";
  if (!std::filesystem::exists(oracle)) GTEST_SKIP() << "the full oracle is missing: " << oracle;
  constexpr const char* kTurns = R"([{"role": "system", "content": "first rule"}, {"role": "user", "content": "why"},
    {"role": "assistant", "content": "because"}, {"role": "system", "content": "second rule"},
    {"role": "user", "content": "how"}])";
  std::set<std::string> adapted;
  for (const auto& family : std::filesystem::directory_iterator(oracle)) {
    if (!family.is_directory()) continue;
    const std::string name = family.path().filename().string();
    const std::string text = rendered(contents(family.path() / "template.jinja"), kTurns);
    EXPECT_TRUE(contains_all(text, {"why", "because", "how"})) << name;
    if (notes_.empty()) continue;  // what a template makes of messages that it takes is its own matter
    adapted.insert(name);
    EXPECT_TRUE(contains_all(text, {"first rule", "second rule"})) << name;
  }
  for (const char* refusing : {"gemma3", "mistral-nemo", "mistral-nemo-old", "mistral-small-3.2", "qwen3.5"})
    EXPECT_TRUE(adapted.contains(refusing)) << refusing;
}

TEST_F(RenderMessagesTest, error_is_that_of_the_conversation_as_it_was_sent) {
  EXPECT_NE(rendered(kAlternating, R"([{"role": "assistant", "content": "w"}])").find("roles must alternate"),
            std::string::npos);
  EXPECT_TRUE(notes_.empty());
}

}  // namespace
}  // namespace zinc
