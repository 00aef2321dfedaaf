#include "cli/chat/conversation.h"

#include <gtest/gtest.h>

namespace zinc {
namespace {

std::string refusal(std::string_view text) {
  const Result<Conversation> read = Conversation::read(parse_json(text).value());
  return read.ok() ? "" : read.error().message;
}

TEST(Conversation, comes_back_from_its_messages) {
  const Conversation said{.system = "Be brief.", .turns = {{"one?", "1", "a thought"}, {"two\nlines?", "2"}}};
  const Conversation read = Conversation::read(json::object{{"messages", said.messages()}}).value();
  EXPECT_EQ(read.messages(), said.messages());
  EXPECT_EQ(read.system, "Be brief.");
  EXPECT_EQ(read.turns.at(0).reasoning, "a thought");
  EXPECT_EQ(read.turns.at(1).question, "two\nlines?");
  EXPECT_TRUE(Conversation::read(json::object{{"messages", json::array()}}).value().turns.empty());
}

TEST(Conversation, an_empty_system_message_is_none) {
  const char* const file = R"({"messages": [{"role": "system", "content": ""}, {"role": "user", "content": "a"},
                                            {"role": "assistant", "content": "b"}]})";
  const Conversation read = Conversation::read(parse_json(file).value()).value();
  EXPECT_EQ(read.system, "");
  EXPECT_EQ(read.messages().size(), 2u);
}

TEST(Conversation, a_question_is_asked_after_what_was_said) {
  const Conversation said{.turns = {{"one?", "1"}}};
  const json::array messages = said.messages_with("two?");
  ASSERT_EQ(messages.size(), 3u);
  EXPECT_EQ(messages[2].at("content").as_string(), "two?");
  EXPECT_EQ(said.turns.size(), 1u);
}

TEST(Conversation, what_is_none_is_refused_by_message) {
  EXPECT_NE(refusal("[]").find("'messages'"), std::string::npos);
  EXPECT_NE(refusal(R"({"messages": [3]})").find("message 0 is no object"), std::string::npos);
  EXPECT_NE(refusal(R"({"messages": [{"role": "user"}]})").find("message 0 has no text 'content'"), std::string::npos);
  EXPECT_NE(refusal(R"({"messages": [{"role": "assistant", "content": ""}]})").find("expected 'user'"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"messages": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]})")
                .find("message 1 is of 'user'; expected 'assistant'"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"messages": [{"role": "user", "content": "a"}]})").find("no answer"), std::string::npos);
}

}  // namespace
}  // namespace zinc
