#include "server/text_queue.h"

#include <algorithm>

namespace zinc {

void TextQueue::add(Task task) {
  pass_over_those_who_left();  // each holds a body
  const auto own = std::ranges::find(turns_, task.client, &Turn::client);
  if (own == turns_.end()) {
    std::string client = task.client;
    turns_.push_back({std::move(client), {}});
    turns_.back().tasks.push_back(std::move(task));
  } else {
    own->tasks.push_back(std::move(task));
  }
  if (!is_busy_) start_next();
}

void TextQueue::pass_over_those_who_left() {
  for (Turn& turn : turns_) std::erase_if(turn.tasks, [](const Task& task) { return !task.reply->is_open(); });
  std::erase_if(turns_, [](const Turn& turn) { return turn.tasks.empty(); });
}

void TextQueue::start_next() {
  pass_over_those_who_left();
  if (turns_.empty()) return;
  Turn turn = std::move(turns_.front());
  turns_.pop_front();
  const auto task = std::make_shared<Task>(std::move(turn.tasks.front()));
  turn.tasks.pop_front();
  if (!turn.tasks.empty()) turns_.push_back(std::move(turn));
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
