#include "cli/chat/conversation_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

#include "tests/support/test_files.h"

namespace zinc {
namespace {

namespace fs = std::filesystem;

StoredConversation about(const std::string& question) {
  return {.model = "tiny", .settings = {{"temp", "0.5"}}, .conversation = {.turns = {{question, "an answer"}}}};
}

class ConversationStoreTest : public testing::Test {
 protected:
  int add(const std::string& question) {
    OpenConversation opened = std::move(store_.create().value());
    EXPECT_TRUE(opened.save(about(question)).ok());
    const fs::path file = folder_ / "state" / (std::to_string(opened.id()) + ".json");
    fs::last_write_time(file, started_ + std::chrono::seconds(++n_added_));
    return opened.id();
  }
  const TestFolder folder_;
  const ConversationStore store_{folder_ / "state"};
  const fs::file_time_type started_ = fs::file_time_type::clock::now() - std::chrono::hours(1);
  int n_added_ = 0;
};

TEST_F(ConversationStoreTest, conversation_survives_the_process) {
  EXPECT_TRUE(store_.list().empty());
  StoredConversation stored = about("why?");
  stored.conversation.system = "Be brief.";
  stored.conversation.unanswered = "and now?";
  {
    OpenConversation opened = std::move(store_.create().value());
    ASSERT_TRUE(opened.save(about("earlier state")).ok());
    ASSERT_TRUE(opened.save(stored).ok());
  }
  const StoredConversation read = store_.read(1).value();
  EXPECT_EQ(read.model, "tiny");
  EXPECT_EQ(read.settings, stored.settings);
  EXPECT_EQ(read.conversation.messages(), stored.conversation.messages());
  EXPECT_EQ(read.conversation.unanswered, "and now?");
}

TEST_F(ConversationStoreTest, file_is_readable_by_its_owner_only) {
  add("a secret");
  EXPECT_EQ(fs::status(folder_ / "state" / "1.json").permissions() & fs::perms::all,
            fs::perms::owner_read | fs::perms::owner_write);
}

TEST_F(ConversationStoreTest, chats_at_the_same_time_get_different_conversations) {
  OpenConversation first = std::move(store_.create().value());
  OpenConversation second = std::move(store_.create().value());
  EXPECT_NE(first.id(), second.id());
  ASSERT_TRUE(first.save(about("one")).ok());
  ASSERT_TRUE(second.save(about("two")).ok());
  EXPECT_EQ(store_.read(first.id()).value().conversation.turns.at(0).question, "one");
  const Result<OpenConversation> again = store_.open(first.id());
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(again.error().message, "conversation 1 is open in another chat; close it there first");
  EXPECT_FALSE(store_.remove(first.id()).ok());
}

TEST_F(ConversationStoreTest, latest_conversation_is_found_first) {
  add("The sky");
  add("the sea");
  add("colors");
  ASSERT_TRUE(store_.open(1).value().save(about("The sky again")).ok());
  EXPECT_EQ(store_.list().front().id, 1);
  EXPECT_EQ(store_.find("").value(), 1);
  EXPECT_EQ(store_.find("3").value(), 3);
  EXPECT_EQ(store_.find("SEA").value(), 2);
  EXPECT_NE(store_.find("moon").error().message.find("'moon' in its title"), std::string::npos);
  EXPECT_NE(store_.open(9).error().message.find("no conversation 9"), std::string::npos);
}

TEST_F(ConversationStoreTest, conversation_without_a_question_is_not_listed) {
  for (int i = 1; i <= 12; ++i) add("the sky");
  ASSERT_TRUE(store_.open(2).value().save({.model = "m", .settings = {}, .conversation = {.system = "brief"}}).ok());
  EXPECT_EQ(store_.list().size(), 11u);
  const std::vector<int> ids = store_.ids();
  EXPECT_EQ(ids.size(), 12u) << "it can be deleted";
  EXPECT_TRUE(std::ranges::is_sorted(ids));
}

TEST_F(ConversationStoreTest, deleted_conversation_leaves_no_file) {
  add("one");
  ASSERT_TRUE(store_.remove(1).ok());
  EXPECT_TRUE(fs::is_empty(folder_ / "state"));
  EXPECT_FALSE(store_.remove(1).ok());
  EXPECT_FALSE(store_.find("").ok());
}

TEST_F(ConversationStoreTest, unreadable_file_is_listed_with_its_path_and_never_found) {
  add("one");
  const fs::path file = put(folder_ / "state" / "7.json", "nonsense");
  put(folder_ / "state" / "notes.txt", "mine");
  EXPECT_EQ(store_.list().size(), 2u);
  const std::string table = conversation_table(store_.list(), 80);
  EXPECT_NE(table.find("  -  -      (unreadable)\n"), std::string::npos) << table;
  EXPECT_NE(table.find("conversation 7 cannot be read: " + file.string() + ": "), std::string::npos) << table;
  EXPECT_NE(table.find("delete it with `zinc chat --delete 7`\n"), std::string::npos);
  EXPECT_EQ(store_.find("").value(), 1) << "the latest that can be read";
  EXPECT_EQ(contents(file), "nonsense");
  EXPECT_NE(store_.read(7).error().message.find("7.json"), std::string::npos);
  EXPECT_EQ(store_.create().value().id(), 8) << "no file is overwritten";
}

TEST_F(ConversationStoreTest, unreadable_files_and_partial_files_can_be_deleted) {
  add("one");
  put(folder_ / "state" / "7.json", "nonsense");
  put(folder_ / "state" / "1.json.part-4711-1", "a killed chat");
  put(folder_ / "state" / "2147483647.json", "not an id of ours");
  EXPECT_EQ(store_.ids().size(), 2u);
  for (const int id : store_.ids()) EXPECT_TRUE(store_.remove(id).ok()) << id;
  fs::remove(folder_ / "state" / "2147483647.json");
  EXPECT_TRUE(fs::is_empty(folder_ / "state"));
}

TEST_F(ConversationStoreTest, folder_belongs_to_its_owner_only) {
  add("one");
  EXPECT_EQ(fs::status(folder_ / "state").permissions(), fs::perms::owner_all);
}

TEST_F(ConversationStoreTest, table_is_cut_to_the_width) {
  add("Why is the sky blue, and why is it not 大小大小大小大小大小大小大小大小大小大小大小大小?\x1b[2J");
  const std::string table = conversation_table(store_.list(), 80);
  EXPECT_NE(table.find("Why is the sky blue"), std::string::npos);
  EXPECT_NE(table.find("...\n"), std::string::npos);
  EXPECT_EQ(table.find('\x1b'), std::string::npos);
  EXPECT_NE(conversation_table(store_.list(), 0).find("\\x1b[2J"), std::string::npos);
  EXPECT_EQ(conversation_table({}, 80), "no conversations\n");
}

}  // namespace
}  // namespace zinc
