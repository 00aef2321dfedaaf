#include "cli/chat/page_export.h"

#include <gtest/gtest.h>

#include "cli/chat/conversation.h"

namespace zinc {
namespace {

json::value export_of(std::string_view messages, std::string_view head) {
  return parse_json(fmt::format(R"({{"format": "zinc-conversations", "version": 1, "conversations": [
      {{"id": "c", "title": "t", "head": "{}", "settings": {{"system": "Be brief."}}, "messages": [{}]}}]}})",
                                head, messages))
      .value();
}

constexpr std::string_view kMessages = R"(
    {"id": "q", "parent": null, "role": "user", "content": "Why?", "attachments": [{"name": "a.txt", "text": "rain"}]},
    {"id": "old", "parent": "q", "role": "assistant", "content": "another branch"},
    {"id": "a", "parent": "q", "role": "assistant", "content": "So.", "reasoning": "hm"},
    {"id": "q2", "parent": "a", "role": "user", "content": "And?"})";

TEST(PageExport, visible_branch_becomes_the_conversation) {
  const json::value file = export_of(kMessages, "q2");
  ASSERT_TRUE(is_page_export(file));
  const Conversation read = Conversation::read(read_page_export(file).value()).value();
  EXPECT_EQ(read.system, "Be brief.");
  ASSERT_EQ(read.turns.size(), 1u);
  EXPECT_EQ(read.turns[0].question, "a.txt\n```\nrain\n```\n\nWhy?");
  EXPECT_EQ(read.turns[0].answer, "So.");
  EXPECT_EQ(read.turns[0].reasoning, "hm");
  EXPECT_EQ(read.unanswered, "And?");
  EXPECT_EQ(Conversation::read(read_page_export(export_of(kMessages, "a")).value()).value().unanswered, "");
}

TEST(PageExport, other_files_and_what_the_chat_cannot_hold_are_refused) {
  EXPECT_FALSE(is_page_export(parse_json(R"({"messages": []})").value()));
  EXPECT_FALSE(is_page_export(parse_json("[]").value()));
  const json::value two = parse_json(R"({"format": "zinc-conversations", "conversations": [{}, {}]})").value();
  EXPECT_NE(read_page_export(two).error().message.find("has 2 conversations"), std::string::npos);
  const json::value tools =
      export_of(R"({"id": "t", "parent": null, "role": "tool", "content": "", "toolCallId": "x"})", "t");
  EXPECT_NE(read_page_export(tools).error().message.find("tool calls"), std::string::npos);
}

TEST(PageExport, cycle_of_parents_ends) {
  const json::value cycle = export_of(R"({"id": "a", "parent": "b", "role": "user", "content": "1"},
                                         {"id": "b", "parent": "a", "role": "assistant", "content": "2"})",
                                      "a");
  EXPECT_TRUE(read_page_export(cycle).ok());
}

}  // namespace
}  // namespace zinc
