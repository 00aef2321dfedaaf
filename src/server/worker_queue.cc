#include "server/worker_queue.h"

#include <algorithm>

namespace zinc {

void WorkerQueue::add(Task task) {
  drop_disconnected();  // each task holds a request body
  const auto own = std::ranges::find(client_queues_, task.client, &ClientQueue::client);
  if (own == client_queues_.end()) {
    std::string client = task.client;
    client_queues_.push_back({std::move(client), {}});
    client_queues_.back().tasks.push_back(std::move(task));
  } else {
    own->tasks.push_back(std::move(task));
  }
  if (!is_busy_) start_next();
}

void WorkerQueue::drop_disconnected() {
  for (ClientQueue& queue : client_queues_)
    std::erase_if(queue.tasks, [](const Task& task) { return !task.reply->is_open(); });
  std::erase_if(client_queues_, [](const ClientQueue& queue) { return queue.tasks.empty(); });
}

void WorkerQueue::start_next() {
  drop_disconnected();
  if (client_queues_.empty()) return;
  ClientQueue queue = std::move(client_queues_.front());
  client_queues_.pop_front();
  auto task = std::make_shared<Task>(std::move(queue.tasks.front()));
  queue.tasks.pop_front();
  if (!queue.tasks.empty()) client_queues_.push_back(std::move(queue));
  is_busy_ = true;
  work_([this, task = std::move(task)]() mutable {
    std::function<void()> then = task->work();
    // Moved: no reference stays on the worker thread, so that the event loop destroys the task.
    post_([this, task = std::move(task), then = std::move(then)] {
      is_busy_ = false;
      then();
      if (!is_busy_) start_next();
    });
  });
}

}  // namespace zinc
