#include "tests/emulated_gpu/launches.h"

#include <algorithm>
#include <deque>
#include <list>
#include <mutex>

#include "tests/emulated_gpu/copies.h"
#include "tests/emulated_gpu/order.h"

namespace zinc::emulated {
namespace {

// Concurrency limits. Three launches: two that wait, one of them for a launch that is itself waiting.
constexpr size_t kMaxLaunches = 3, kMaxClusters = 8;  // clusters: per launch

// The part of the unused dynamic shared memory that is checked.
std::span<const char> guard_of(std::span<const char> memory, size_t n_used) {
  constexpr size_t kMaxBytes = 1024;
  const std::span<const char> guard = memory.subspan(n_used);
  return guard.first(std::min(guard.size(), kMaxBytes));
}

// A launch in flight.
class Grid {
 public:
  explicit Grid(const KernelLaunch& launch);
  // While earlier launches are incomplete: clusters run up to their wait.
  void begin();
  // After earlier launches completed: all clusters reach the goal.
  void run(Cluster::Goal goal);
  void end();
  bool has_launched_dependents() const;

 private:
  Cluster& start_next();
  void end_first();

  const KernelLaunch& launch_;
  std::vector<EmulatedIndex> to_start_;  // the first block of each cluster, in reverse order
  std::list<Cluster> resident_;
  bool has_waited_ = false;
};

Grid::Grid(const KernelLaunch& launch) : launch_(launch) {
  const EmulatedIndex& grid = launch.info.grid;
  for (unsigned z = 0; z < grid.z; ++z) {
    for (unsigned y = 0; y < grid.y; ++y) {
      for (unsigned x = 0; x < grid.x; x += launch.cluster) to_start_.push_back({x, y, z});
    }
  }
  Order::of_process().arrange(to_start_);
  std::ranges::reverse(to_start_);
}

Cluster& Grid::start_next() {
  const EmulatedIndex first = to_start_.back();
  to_start_.pop_back();
  std::vector<Block> blocks;
  for (unsigned rank = 0; rank < launch_.cluster; ++rank) {
    const KernelImage& image = (*launch_.images)[rank];
    blocks.push_back({.body = [kernel = image.kernel, this] { kernel(launch_.params); },
                      .shared = image.shared,
                      .guard = guard_of(image.dynamic_shared, launch_.info.shared_bytes),
                      .index = {first.x + rank, first.y, first.z}});
  }
  return resident_.emplace_back(launch_.info, std::move(blocks));
}

void Grid::begin() {
  while (resident_.size() < kMaxClusters && !to_start_.empty()) start_next().run(Cluster::Goal::end, false);
}

void Grid::run(Cluster::Goal goal) {
  for (Cluster& cluster : resident_) cluster.run(goal, true);
  while (!to_start_.empty()) {
    if (resident_.size() == kMaxClusters) end_first();
    start_next().run(goal, true);
  }
}

void Grid::end_first() {
  Cluster& cluster = resident_.front();
  cluster.run(Cluster::Goal::end, true);
  has_waited_ = has_waited_ || cluster.has_waited();
  resident_.pop_front();
}

// The next launch waits only for this one, and relies on it having waited for those before.
void Grid::end() {
  run(Cluster::Goal::end);
  while (!resident_.empty()) end_first();
  if (launch_.info.is_dependent_launch && !has_waited_)
    fail_kernel(launch_.info.kernel, "does not call wait_dependency");
}

bool Grid::has_launched_dependents() const {
  return to_start_.empty() && std::ranges::all_of(resident_, &Cluster::has_launched_dependents);
}

std::mutex one_at_a_time;  // across host threads

}  // namespace

void run_launches(std::span<const KernelLaunch> launches) {
  const std::lock_guard lock(one_at_a_time);
  std::deque<Grid> in_flight;
  size_t next = 0;
  while (next < launches.size() || !in_flight.empty()) {
    if (in_flight.empty()) in_flight.emplace_back(launches[next++]);
    in_flight.front().run(Cluster::Goal::dependents_launched);
    while (next < launches.size() && launches[next].info.is_dependent_launch && in_flight.size() < kMaxLaunches &&
           in_flight.back().has_launched_dependents() && Order::of_process().starts_dependent_early()) {
      in_flight.emplace_back(launches[next++]).begin();
    }
    in_flight.front().end();
    in_flight.pop_front();
  }
}

}  // namespace zinc::emulated
