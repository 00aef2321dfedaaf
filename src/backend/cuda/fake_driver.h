// For tests: a fake driver that uses host memory as device memory and records launches without running them. One
// instance at a time.
#pragma once

#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "backend/cuda/driver_api.h"

namespace zinc::cuda {

struct FakeFunction {
  std::string kernel, code;
};

struct FakeLaunch {
  std::string kernel, code;  // code: the zero-terminated bytes from the test's CubinProvider
  LaunchConfig config;
  std::vector<LaunchAttribute> attributes;
  std::vector<std::byte> params;

  unsigned attribute(int id) const {  // its first value; 0: not set
    for (const LaunchAttribute& a : attributes) {
      if (a.id == id) return a.value.dimensions[0];
    }
    return 0;
  }
};

struct FakeDriver {
  int major = 9, minor = 0, n_sms = 4, has_clusters = 1, shared_bytes = 232448;
  bool keeps_bytes = true;  // false: memory is never written, for models of any size
  size_t free_bytes = size_t{1} << 30;
  size_t device_bytes = 0;  // allocated so far
  int n_allocations = 0, n_captures = 0, n_modules = 0, n_copies_h2d = 0, n_copies_d2h = 0, n_replays = 0,
      n_stream_waits = 0, n_event_waits = 0, n_captured_events = 0;
  bool copies_fail = false;   // device-to-device copies fail
  int n_without_context = 0;  // calls on threads without a current context
  size_t n_streams = 0;
  Stream capturing = nullptr;                  // the stream being captured accepts only launches
  std::function<void()> on_capture;            // called when the next capture has started
  std::vector<FakeLaunch> captured;            // by the current capture
  std::deque<std::vector<FakeLaunch>> graphs;  // all captured graphs; addresses stay valid
  const std::vector<FakeLaunch>* last_replay = nullptr;
  std::deque<std::string> modules;
  std::deque<FakeFunction> functions;

  static FakeDriver& current();
  static std::recursive_mutex& mutex();  // held by every call: a plan prepares step classes on a thread
  static Context& context();             // of this thread
  static const DriverApi& api();
};

}  // namespace zinc::cuda
