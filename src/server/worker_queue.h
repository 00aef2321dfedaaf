// Work that takes too long for the event loop (parsing and writing long texts): one task at a time on the worker
// thread, round robin over clients. Tasks of disconnected clients are dropped. Event-loop thread only: tasks are also
// destroyed there, since they may hold the last reference to a connection or a model.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "server/reply.h"

namespace zinc {

class WorkerQueue {
 public:
  using Run = std::function<void(std::function<void()> task)>;
  // `work` runs a task on the worker thread, `post` on the event loop. Both must have ended before this is destroyed.
  WorkerQueue(Run work, Run post) : work_(std::move(work)), post_(std::move(post)) {}

  struct Task {
    std::string client;
    std::shared_ptr<Reply> reply;
    std::function<std::function<void()>()> work;  // on the worker thread; the result runs on the event loop
  };
  void add(Task task);

 private:
  struct ClientQueue {
    std::string client;
    std::deque<Task> tasks;
  };
  void drop_disconnected();
  void start_next();

  Run work_, post_;
  std::deque<ClientQueue> client_queues_;  // the next client first
  bool is_busy_ = false;
};

}  // namespace zinc
