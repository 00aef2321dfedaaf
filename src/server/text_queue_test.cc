#include "server/text_queue.h"

#include <gtest/gtest.h>

#include "tests/support/api_fixture.h"

namespace zinc {
namespace {

class TextQueueTest : public testing::Test {
 protected:
  std::shared_ptr<TestReply> add(const std::string& client, const std::string& name) {
    const auto reply = std::make_shared<TestReply>();
    queue.add({.client = client, .reply = reply, .work = [this, name]() -> std::function<void()> {
                 read.push_back(name);
                 return [] {};
               }});
    return reply;
  }
  void run() {
    while (!tasks.empty()) {
      const std::function<void()> task = std::move(tasks.front());
      tasks.pop_front();
      task();
    }
  }

  std::deque<std::function<void()>> tasks;
  TextQueue::Run later = [this](std::function<void()> task) { tasks.push_back(std::move(task)); };
  TextQueue queue{later, later};
  std::vector<std::string> read;
};

TEST_F(TextQueueTest, clients_take_turns) {
  for (const char* name : {"a1", "a2", "a3"}) add("a", name);
  for (const char* name : {"b1", "b2"}) add("b", name);
  add("c", "c1");
  run();
  EXPECT_EQ(read, (std::vector<std::string>{"a1", "a2", "b1", "c1", "a3", "b2"}));
}

TEST_F(TextQueueTest, the_text_of_a_client_that_has_left_is_not_read) {
  add("a", "first");
  add("a", "left")->leave();
  add("a", "last");
  run();
  EXPECT_EQ(read, (std::vector<std::string>{"first", "last"}));
}

}  // namespace
}  // namespace zinc
