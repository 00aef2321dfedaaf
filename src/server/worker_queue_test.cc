#include "server/worker_queue.h"

#include <gtest/gtest.h>

#include "tests/support/api_fixture.h"

namespace zinc {
namespace {

class WorkerQueueTest : public testing::Test {
 protected:
  std::shared_ptr<TestReply> add(const std::string& client, const std::string& name) {
    const auto reply = std::make_shared<TestReply>();
    queue.add({.client = client, .reply = reply, .work = [this, name]() -> std::function<void()> {
                 done.push_back(name);
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
  WorkerQueue::Run later = [this](std::function<void()> task) { tasks.push_back(std::move(task)); };
  WorkerQueue queue{later, later};
  std::vector<std::string> done;
};

TEST_F(WorkerQueueTest, clients_are_served_round_robin) {
  for (const char* name : {"a1", "a2", "a3"}) add("a", name);
  for (const char* name : {"b1", "b2"}) add("b", name);
  add("c", "c1");
  run();
  EXPECT_EQ(done, (std::vector<std::string>{"a1", "a2", "b1", "c1", "a3", "b2"}));
}

TEST_F(WorkerQueueTest, task_of_a_disconnected_client_is_dropped) {
  add("a", "first");
  add("a", "disconnected")->disconnect();
  add("a", "last");
  run();
  EXPECT_EQ(done, (std::vector<std::string>{"first", "last"}));
}

TEST_F(WorkerQueueTest, task_is_destroyed_on_the_event_loop) {
  const std::weak_ptr<TestReply> reply = add("a", "first");
  const std::function<void()> on_worker_thread = std::move(tasks.front());
  tasks.pop_front();
  on_worker_thread();
  EXPECT_FALSE(reply.expired());
  run();  // the event loop, before the worker thread destroys its function
  EXPECT_TRUE(reply.expired());
}

}  // namespace
}  // namespace zinc
