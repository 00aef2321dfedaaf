// Prepares the step classes of a plan on a thread of its own: compiles and records them while the model is already in
// use. Thread-safe.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/result.h"

namespace zinc::gpu {

class ClassPreparer {
 public:
  using Prepare = std::function<Status(size_t step_class)>;  // called once per class, on the thread
  ClassPreparer(size_t n_classes, Prepare prepare);
  ~ClassPreparer();  // waits for the class being prepared; the others are not prepared
  ClassPreparer(const ClassPreparer&) = delete;
  ClassPreparer& operator=(const ClassPreparer&) = delete;

  void request(size_t step_class);                // classes are prepared in the order of their first requests
  void prepare_next(size_t step_class);           // the same, before all others: a step needs it
  const Status* result(size_t step_class) const;  // nullptr: not prepared yet
  Status wait_for(size_t step_class);             // requests it
  Status wait_for_requested();                    // for all; the first error

 private:
  void run();

  const Prepare prepare_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<size_t> requested_;               // without duplicates, in the order of preparation
  size_t n_begun_ = 0;                          // of those
  std::vector<std::optional<Status>> results_;  // per class; never changed once it is set
  bool stopping_ = false;
  std::thread thread_;  // ends when all classes are prepared
};

}  // namespace zinc::gpu
