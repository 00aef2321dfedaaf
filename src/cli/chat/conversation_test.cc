#include "cli/chat/conversation.h"

#include <gtest/gtest.h>

namespace zinc {
namespace {

std::string refusal(std::string_view text) {
  const Result<Conversation> read = Conversation::read(parse_json(text).value());
  return read.ok() ? "" : read.error().message;
}

TEST(Conversation, round_trips_through_messages) {
  const Conversation said{.system = "Be brief.", .turns = {{"one?", "1", "some reasoning"}, {"two\nlines?", "2"}}};
  const Conversation read = Conversation::read(json::object{{"messages", said.messages()}}).value();
  EXPECT_EQ(read.messages(), said.messages());
  EXPECT_EQ(read.system, "Be brief.");
  EXPECT_EQ(read.turns.at(0).reasoning, "some reasoning");
  EXPECT_EQ(read.turns.at(1).question, "two\nlines?");
  EXPECT_TRUE(Conversation::read(json::object{{"messages", json::array()}}).value().turns.empty());
}

TEST(Conversation, empty_system_message_is_ignored) {
  const char* const file = R"({"messages": [{"role": "system", "content": ""}, {"role": "user", "content": "a"},
                                            {"role": "assistant", "content": "b"}]})";
  const Conversation read = Conversation::read(parse_json(file).value()).value();
  EXPECT_EQ(read.system, "");
  EXPECT_EQ(read.messages().size(), 2u);
}

TEST(Conversation, new_question_follows_earlier_messages) {
  const Conversation said{.turns = {{"one?", "1"}}};
  const json::array messages = said.prompt("two?");
  ASSERT_EQ(messages.size(), 3u);
  EXPECT_EQ(messages[2].at("content").as_string(), "two?");
  EXPECT_EQ(said.turns.size(), 1u);
}

TEST(Conversation, turns_left_out_are_kept_but_not_part_of_the_prompt) {
  const Conversation said{
      .system = "Be brief.", .turns = {{"one?", "1"}, {"two?", "2"}}, .unanswered = "three?", .n_left_out = 1};
  const json::array prompt = said.prompt(said.unanswered);
  ASSERT_EQ(prompt.size(), 4u);
  EXPECT_EQ(prompt[0].at("content").as_string(), "Be brief.");
  EXPECT_EQ(prompt[1].at("content").as_string(), "two?");
  EXPECT_EQ(prompt[3].at("content").as_string(), "three?");
  const Conversation read = Conversation::read(said.to_json()).value();
  EXPECT_EQ(read.messages(), said.messages());
  EXPECT_EQ(read.unanswered, "three?");
  EXPECT_EQ(read.n_left_out, 1u);
}

TEST(Conversation, title_is_the_first_line_of_the_first_question) {
  EXPECT_EQ((Conversation{.turns = {{"\n why?\nbecause", "1"}, {"two?", "2"}}}).title(), "why?");
  EXPECT_EQ((Conversation{.unanswered = "one"}).title(), "one");
  EXPECT_EQ(Conversation().title(), "");
}

TEST(Conversation, invalid_files_are_rejected_with_the_message_index) {
  EXPECT_NE(refusal("[]").find("'messages'"), std::string::npos);
  EXPECT_NE(refusal(R"({"messages": [3]})").find("message 0 is not an object"), std::string::npos);
  EXPECT_NE(refusal(R"({"messages": [{"role": "user"}]})").find("message 0: 'content' must be a string"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"messages": [{"role": "assistant", "content": ""}]})").find("expected 'user'"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"messages": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]})")
                .find("message 1 has role 'user'; expected 'assistant'"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"messages": [{"role": "user", "content": "a"}]})").find("has no reply"), std::string::npos);
}

}  // namespace
}  // namespace zinc
