#include "tests/emulated_gpu/launches.h"

#include <algorithm>
#include <deque>
#include <list>
#include <mutex>

#include "tests/emulated_gpu/copies.h"
#include "tests/emulated_gpu/order.h"

namespace zinc::emulated {
namespace {

// How much is begun at the same time. Three launches: two that wait, one of them for a launch that has not waited yet
// itself.
constexpr size_t kMostLaunches = 3, kMostClusters = 8;  // clusters: of each

// As much of it as is worth looking at each time.
std::span<const char> behind_of(std::span<const char> memory, size_t n_used) {
  constexpr size_t kMost = 1024;
  const std::span<const char> behind = memory.subspan(n_used);
  return behind.first(std::min(behind.size(), kMost));
}

// A launch under way.
class Grid {
 public:
  explicit Grid(const KernelLaunch& launch);
  // While the launches before have not ended: clusters go as far as they may.
  void begin();
  // They have ended: all clusters reach the goal.
  void run(Cluster::Goal goal);
  void end();
  bool lets_next_start() const;

 private:
  Cluster& start_next();
  void end_first();

  const KernelLaunch& launch_;
  std::vector<EmulatedIndex> to_start_;  // the first block of each cluster, the next one last
  std::list<Cluster> present_;
  bool has_waited_ = false;
};

Grid::Grid(const KernelLaunch& launch) : launch_(launch) {
  const EmulatedIndex& grid = launch.facts.grid;
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
                      .behind = behind_of(image.asked_for, launch_.facts.shared_bytes),
                      .index = {first.x + rank, first.y, first.z}});
  }
  return present_.emplace_back(launch_.facts, std::move(blocks));
}

void Grid::begin() {
  while (present_.size() < kMostClusters && !to_start_.empty()) start_next().run(Cluster::Goal::end, false);
}

void Grid::run(Cluster::Goal goal) {
  for (Cluster& cluster : present_) cluster.run(goal, true);
  while (!to_start_.empty()) {
    if (present_.size() == kMostClusters) end_first();
    start_next().run(goal, true);
  }
}

void Grid::end_first() {
  Cluster& cluster = present_.front();
  cluster.run(Cluster::Goal::end, true);
  has_waited_ = has_waited_ || cluster.has_waited();
  present_.pop_front();
}

// The next launch waits for this one only, and counts on its having waited for those before.
void Grid::end() {
  run(Cluster::Goal::end);
  while (!present_.empty()) end_first();
  if (launch_.facts.starts_early && !has_waited_) refuse(launch_.facts.kernel, "does not wait for the launch before");
}

bool Grid::lets_next_start() const {
  return to_start_.empty() && std::ranges::all_of(present_, &Cluster::lets_next_start);
}

std::mutex one_at_a_time;  // whatever thread of the host launches come from

}  // namespace

void run_launches(std::span<const KernelLaunch> launches) {
  const std::lock_guard lock(one_at_a_time);
  std::deque<Grid> under_way;
  size_t next = 0;
  while (next < launches.size() || !under_way.empty()) {
    if (under_way.empty()) under_way.emplace_back(launches[next++]);
    under_way.front().run(Cluster::Goal::lets_next_start);
    while (next < launches.size() && launches[next].facts.starts_early && under_way.size() < kMostLaunches &&
           under_way.back().lets_next_start() && Order::of_process().starts_early()) {
      under_way.emplace_back(launches[next++]).begin();
    }
    under_way.front().end();
    under_way.pop_front();
  }
}

}  // namespace zinc::emulated
