#include "server/text_queue.h"

#include <algorithm>

namespace zinc {

void TextQueue::add(Task task) {
  waiting_.push_back(std::move(task));
  if (!is_busy_) start_next();
}

void TextQueue::start_next() {
  std::erase_if(waiting_, [](const Task& task) { return !task.reply->is_open(); });
  if (waiting_.empty()) return;
  auto next = std::ranges::find_if(waiting_, [&](const Task& task) { return task.client != last_client_; });
  if (next == waiting_.end()) next = waiting_.begin();
  const auto task = std::make_shared<Task>(std::move(*next));
  waiting_.erase(next);
  last_client_ = task->client;
  is_busy_ = true;
  work_([this, task] {
    post_([this, task, then = task->work()] {
      is_busy_ = false;
      then();
      if (!is_busy_) start_next();
    });
  });
}

}  // namespace zinc
