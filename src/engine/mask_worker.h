// Computes the token masks of constrained outputs on its own thread while the device runs a step, so that the rows of
// other requests do not wait for them. The thread starts with the first mask. Used by the engine thread; between
// start() and wait() only the worker may use the constraints of these outputs.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/output_state.h"

namespace zinc {

class MaskWorker {
 public:
  MaskWorker() = default;
  ~MaskWorker();
  MaskWorker(const MaskWorker&) = delete;
  MaskWorker& operator=(const MaskWorker&) = delete;

  void start(std::vector<OutputState*> outputs);  // REQUIRES: wait() was called after the last start()
  void wait();

 private:
  void run();

  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<OutputState*> outputs_;  // to do; the worker empties it
  bool is_stopping_ = false;
};

}  // namespace zinc
