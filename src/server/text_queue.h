// Texts that take too long to be read on the event loop: one at a time on the worker, clients in turn. Whoever has left
// by the time it is its turn is passed over. Event-loop thread only.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "server/reply.h"

namespace zinc {

class TextQueue {
 public:
  using Run = std::function<void(std::function<void()> task)>;
  // `work`: runs a task on the worker; `post`: on the loop. Both end before this does.
  TextQueue(Run work, Run post) : work_(std::move(work)), post_(std::move(post)) {}

  struct Task {
    std::string client;
    std::shared_ptr<Reply> reply;
    std::function<std::function<void()>()> work;  // on the worker; what it gives is run on the loop
  };
  void add(Task task);

 private:
  struct Turn {
    std::string client;
    std::deque<Task> tasks;
  };
  void pass_over_those_who_left();
  void start_next();

  Run work_, post_;
  std::deque<Turn> turns_;  // the next client first
  bool is_busy_ = false;
};

}  // namespace zinc
