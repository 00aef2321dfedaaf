#include "engine/mask_worker.h"

namespace zinc {

MaskWorker::~MaskWorker() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void MaskWorker::start(std::vector<OutputState*> outputs) {
  if (outputs.empty()) return;
  {
    const std::lock_guard lock(mutex_);
    outputs_ = std::move(outputs);
  }
  if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  changed_.notify_all();
}

void MaskWorker::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return outputs_.empty(); });
}

void MaskWorker::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return is_stopping_ || !outputs_.empty(); });
    if (outputs_.empty()) return;
    const std::vector<OutputState*> outputs = outputs_;
    lock.unlock();
    for (OutputState* output : outputs) output->prepare_mask();
    lock.lock();
    outputs_.clear();
    changed_.notify_all();
  }
}

}  // namespace zinc
