// Kept responses of /v1/responses with their conversations, so that later requests can continue them. Bounded in
// number, bytes and age; the oldest of the namespace that holds the most are dropped first, so that one client cannot
// displace the others. A response is visible only to the namespace that made it. Any thread.
#pragma once

#include <chrono>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "base/json.h"
#include "engine/request.h"

namespace zinc {

struct KeptResponse {
  std::string id;         // "resp_..."
  json::array input;      // the items that the model got, each with an id
  json::object response;  // as it was sent
  size_t n_bytes = 0;     // of both, as JSON

  const json::array& output() const { return response.at("output").get_array(); }
};

struct ResponseStoreLimits {
  int n_responses = 1024;
  size_t bytes = 64 << 20;         // of JSON text; in memory it takes a few times as much
  std::chrono::seconds age{3600};  // since it was made
};

class ResponseStore {
 public:
  using Clock = std::chrono::steady_clock;
  explicit ResponseStore(const ResponseStoreLimits& limits, std::function<Clock::time_point()> now = Clock::now)
      : limits_(limits), now_(std::move(now)) {}

  bool is_off() const { return limits_.n_responses == 0; }
  void put(CacheNamespace owner, KeptResponse response);
  std::shared_ptr<const KeptResponse> find(CacheNamespace owner, std::string_view id);  // nullptr: none
  bool erase(CacheNamespace owner, std::string_view id);

 private:
  struct Entry {
    CacheNamespace owner;
    Clock::time_point made;
    std::shared_ptr<const KeptResponse> response;
  };
  std::list<Entry>::iterator position(CacheNamespace owner, std::string_view id);
  void drop(std::list<Entry>::iterator entry);
  std::list<Entry>::iterator oldest_of_largest(size_t (*size)(const Entry& entry));
  void drop_surplus();

  const ResponseStoreLimits limits_;
  const std::function<Clock::time_point()> now_;
  std::mutex mutex_;
  std::list<Entry> entries_;  // oldest first
  size_t n_bytes_ = 0;
};

}  // namespace zinc
