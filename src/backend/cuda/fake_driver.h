// For tests: a driver whose device memory is host memory and whose kernels do nothing but be counted. One at a time.
#pragma once

#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "backend/cuda/driver_api.h"

namespace zinc::cuda {

struct FakeFunction {
  std::string kernel, code;
};

struct FakeLaunch {
  std::string kernel, code;  // code: what a test's KernelSource gave for its program, up to a zero
  LaunchConfig config;
  std::vector<LaunchAttribute> attributes;
  std::vector<std::byte> params;

  unsigned attribute(int id) const {  // its first number; 0: not there
    for (const LaunchAttribute& a : attributes) {
      if (a.id == id) return a.value.dimensions[0];
    }
    return 0;
  }
};

struct FakeDriver {
  int major = 9, minor = 0, n_multiprocessors = 4, has_clusters = 1, shared_bytes = 232448;
  bool keeps_bytes = true;  // else memory is only addresses: for models of any size
  size_t free_bytes = size_t{1} << 30;
  int n_allocations = 0, n_copies_in = 0, n_copies_out = 0, n_replays = 0, n_stream_waits = 0, n_event_waits = 0;
  bool host_fails = false;    // it gives no pinned memory
  bool copies_fail = false;   // those within the device
  int n_without_context = 0;  // calls of threads that had not taken the GPU
  size_t n_streams = 0;
  Stream capturing = nullptr;                  // takes nothing but launches, which become a graph
  std::function<void()> on_capture;            // what others do as soon as the next one has begun
  std::vector<FakeLaunch> captured;            // by the capture under way
  std::deque<std::vector<FakeLaunch>> graphs;  // every graph made; never moved
  const std::vector<FakeLaunch>* last_replay = nullptr;
  std::deque<std::string> modules;
  std::deque<FakeFunction> functions;

  static FakeDriver& current();
  static Context& context();  // of this thread
  static const DriverApi& api();
};

}  // namespace zinc::cuda
