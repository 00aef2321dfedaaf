#include "tests/emulated_gpu/cluster.h"

#include <algorithm>
#include <array>
#include <boost/context/fiber.hpp>
#include <boost/context/pooled_fixedsize_stack.hpp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>

#include "tests/emulated_gpu/copies.h"
#include "tests/emulated_gpu/order.h"

namespace zinc::emulated {
namespace {

constexpr size_t kStackBytes = size_t{256} << 10;
constexpr int kWarpThreads = 32, kNamedBarriers = 16;
constexpr int kMaxPollingRounds = 1000;  // rounds without progress before a hang is reported

struct Barrier {
  int n_arrived = 0;
  unsigned generation = 0;
  void release() {
    n_arrived = 0;
    ++generation;
  }
};

struct Thread;

struct Warp {
  Barrier barrier;
  int n_alive = kWarpThreads;
  // Two: a lane that is one barrier ahead writes those that the other lanes no longer read.
  std::array<std::array<EmulatedWords, kWarpThreads>, 2> exchanged{};
  std::vector<Thread*> run_order;
};

struct BlockState {
  Block block;
  Barrier all;
  std::array<Barrier, kNamedBarriers> some;
  std::vector<Warp> warps;
  int n_alive;
  std::vector<Warp*> run_order{};
  std::vector<char> shared{};  // saved contents of its shared memory; empty before it starts
  bool has_launched_dependents = false;
};

struct Wgmma {
  void (*compute)(const void* of);
  std::vector<std::byte> of;
};

struct Thread {
  boost::context::fiber fiber{};
  BlockState* block;
  EmulatedThreadIndex index;
  const Barrier* waiting_on = nullptr;
  unsigned generation = 0;  // of waiting_on
  unsigned cluster_generation = 0;
  bool is_polling = false, has_ended = false;
  CommitGroups<Copy> copies{};
  CommitGroups<Wgmma> wgmmas{};
  Warp& warp() const { return block->warps[index.thread.x / kWarpThreads]; }
};

boost::context::pooled_fixedsize_stack& stacks() {
  static boost::context::pooled_fixedsize_stack pool(kStackBytes);
  return pool;
}

}  // namespace

class Cluster::Execution {
 public:
  Execution(const LaunchInfo& launch, std::vector<Block> blocks);
  void run(Goal goal, bool is_previous_complete);
  bool has_ended() const { return n_alive_ == 0; }
  bool has_launched_dependents() const { return std::ranges::all_of(blocks_, &BlockState::has_launched_dependents); }

  bool has_waited() const { return has_waited_; }

  // For the running thread.
  Thread& self() { return *self_; }
  void suspend() { host_ = std::move(host_).resume(); }
  void wait(Barrier& barrier, int n_needed);
  void cluster_arrive();
  void cluster_wait() { wait_for(cluster_, self().cluster_generation); }
  void wait_dependency();
  void launch_dependents();
  const std::string& kernel() const { return launch_.kernel; }
  char* shared(int rank) const { return blocks_[static_cast<size_t>(rank)].block.shared.data(); }
  MbarrierCopies mbarrier_copies;

 private:
  void add_threads(BlockState& block, int rank);
  bool is_at(Goal goal) const {
    return has_ended() || (goal == Goal::dependents_launched && has_launched_dependents());
  }
  // Runs until all are blocked; returns whether any made progress. A warp runs until it blocks, and so does a block:
  // the further ahead one is, the more likely a missing barrier shows.
  template <class T, class RunOne>
  bool run_until_blocked(std::vector<T*>& run_order, Goal goal, RunOne&& run_one);
  bool run_until_blocked(Goal goal);
  bool is_runnable(const Thread& thread) const;
  bool resume(Thread& thread);
  void end(Thread& thread);
  void wait_for(const Barrier& barrier, unsigned generation);
  void restore_shared();
  void save_shared();
  void check_guard() const;
  [[noreturn]] void report_hang() const;

  const LaunchInfo& launch_;
  std::vector<BlockState> blocks_;
  std::deque<Thread> threads_;
  std::vector<BlockState*> run_order_;
  boost::context::fiber host_;
  Thread* self_ = nullptr;
  Barrier cluster_, previous_;
  int n_alive_;
  bool is_previous_complete_ = false, has_waited_ = false;
  int n_waiting_ = 0;  // threads in wait_dependency()
};

namespace {

Cluster::Execution* active = nullptr;  // one at a time

}  // namespace

Cluster::Execution::Execution(const LaunchInfo& launch, std::vector<Block> blocks)
    : launch_(launch), n_alive_(static_cast<int>(blocks.size() * launch.n_threads)) {
  for (Block& block : blocks) {
    blocks_.push_back({.block = std::move(block),
                       .all = {},
                       .some = {},
                       .warps = std::vector<Warp>(launch.n_threads / kWarpThreads),
                       .n_alive = static_cast<int>(launch.n_threads)});
  }
  for (size_t rank = 0; rank < blocks_.size(); ++rank) add_threads(blocks_[rank], static_cast<int>(rank));
  for (BlockState& block : blocks_) {
    run_order_.push_back(&block);
    for (Warp& warp : block.warps) block.run_order.push_back(&warp);
    Order::of_process().arrange(block.run_order);
  }
  Order::of_process().arrange(run_order_);
}

void Cluster::Execution::add_threads(BlockState& block, int rank) {
  for (unsigned i = 0; i < launch_.n_threads; ++i) {
    const EmulatedThreadIndex index = {{i, 0, 0}, block.block.index, launch_.grid, {launch_.n_threads, 1, 1}, rank};
    Thread& thread = threads_.emplace_back(Thread{.block = &block, .index = index});
    thread.fiber = boost::context::fiber(std::allocator_arg, stacks(), [this, &thread](boost::context::fiber&& host) {
      host_ = std::move(host);
      thread.block->block.body();
      end(thread);
      return std::move(host_);
    });
    thread.warp().run_order.push_back(&thread);
  }
  for (Warp& warp : block.warps) Order::of_process().arrange(warp.run_order);
}

void Cluster::Execution::run(Goal goal, bool is_previous_complete) {
  if (is_at(goal)) return;
  is_previous_complete_ = is_previous_complete;
  if (is_previous_complete) {
    previous_.release();
    n_waiting_ = 0;
  }
  active = this;
  restore_shared();
  for (int n_polling = 0; !is_at(goal) && (run_until_blocked(goal) || n_waiting_ == 0); ++n_polling) {
    if (n_polling > kMaxPollingRounds) report_hang();
  }
  if (has_ended()) {
    check_guard();
  } else {
    save_shared();
  }
  active = nullptr;
}

template <class T, class RunOne>
bool Cluster::Execution::run_until_blocked(std::vector<T*>& run_order, Goal goal, RunOne&& run_one) {
  bool has_progressed = false;
  for (bool progresses = true; progresses;) {
    progresses = false;
    for (T* one : run_order) {
      progresses = run_one(*one) || progresses;
      if (is_at(goal)) return true;
    }
    has_progressed = has_progressed || progresses;
    Order::of_process().arrange_again(run_order);
  }
  return has_progressed;
}

bool Cluster::Execution::run_until_blocked(Goal goal) {
  return run_until_blocked(run_order_, goal, [&](BlockState& block) {
    return run_until_blocked(block.run_order, goal, [&](Warp& warp) {
      return run_until_blocked(warp.run_order, goal, [&](Thread& thread) { return resume(thread); });
    });
  });
}

bool Cluster::Execution::is_runnable(const Thread& thread) const {
  return !thread.has_ended && (!thread.waiting_on || thread.waiting_on->generation != thread.generation);
}

// Whether it did more than poll.
bool Cluster::Execution::resume(Thread& thread) {
  if (!is_runnable(thread)) return false;
  thread.waiting_on = nullptr;
  thread.is_polling = false;
  self_ = &thread;
  emulated_index = thread.index;
  thread.fiber = std::move(thread.fiber).resume();
  return !thread.is_polling;
}

// Releases barriers that waited only for this thread.
void Cluster::Execution::end(Thread& thread) {
  thread.has_ended = true;
  --n_alive_;
  if (n_alive_ == 0 && !mbarrier_copies.empty())
    fail_kernel(kernel(), "exits with pending copies to its shared memory");
  BlockState& block = *thread.block;
  if (--block.n_alive > 0 && block.all.n_arrived == block.n_alive) block.all.release();
  Warp& warp = thread.warp();
  if (--warp.n_alive > 0 && warp.barrier.n_arrived == warp.n_alive) warp.barrier.release();
  if (block.n_alive == 0) block.has_launched_dependents = true;
}

void Cluster::Execution::wait(Barrier& barrier, int n_needed) {
  const unsigned generation = barrier.generation;
  if (++barrier.n_arrived == n_needed) return barrier.release();
  wait_for(barrier, generation);
}

void Cluster::Execution::wait_for(const Barrier& barrier, unsigned generation) {
  if (barrier.generation != generation) return;
  self().waiting_on = &barrier;
  self().generation = generation;
  suspend();
}

void Cluster::Execution::cluster_arrive() {
  self().cluster_generation = cluster_.generation;
  if (++cluster_.n_arrived == static_cast<int>(threads_.size())) cluster_.release();
}

void Cluster::Execution::wait_dependency() {
  has_waited_ = true;
  if (is_previous_complete_) return;
  ++n_waiting_;
  wait_for(previous_, previous_.generation);
}

// The first call of a block counts. The thread yields, so that the dependent launch runs before its next statement.
void Cluster::Execution::launch_dependents() {
  if (self().block->has_launched_dependents) return;
  self().block->has_launched_dependents = true;
  suspend();
}

void Cluster::Execution::restore_shared() {
  for (BlockState& block : blocks_) {
    if (block.shared.empty()) {
      std::ranges::fill(block.block.shared, static_cast<char>(kPoisonByte));
    } else {
      std::ranges::copy(block.shared, block.block.shared.begin());
    }
  }
}

void Cluster::Execution::save_shared() {
  for (BlockState& block : blocks_) block.shared.assign(block.block.shared.begin(), block.block.shared.end());
}

void Cluster::Execution::check_guard() const {
  for (const BlockState& block : blocks_) {
    const auto is_poison = [](char byte) { return byte == static_cast<char>(kPoisonByte); };
    if (!std::ranges::all_of(block.block.guard, is_poison))
      fail_kernel(kernel(), "writes past the end of its shared memory");
  }
}

void Cluster::Execution::report_hang() const {
  const auto n_polling = std::ranges::count_if(threads_, &Thread::is_polling);
  std::fprintf(stderr, "emulated GPU: kernel %s hangs: %d threads are left, %d of them polling\n", kernel().c_str(),
               n_alive_, static_cast<int>(n_polling));
  std::abort();
}

Cluster::Cluster(const LaunchInfo& launch, std::vector<Block> blocks)
    : execution_(std::make_unique<Execution>(launch, std::move(blocks))) {}
Cluster::~Cluster() = default;
void Cluster::run(Goal goal, bool is_previous_complete) { execution_->run(goal, is_previous_complete); }
bool Cluster::has_ended() const { return execution_->has_ended(); }
bool Cluster::has_launched_dependents() const { return execution_->has_launched_dependents(); }
bool Cluster::has_waited() const { return execution_->has_waited(); }

}  // namespace zinc::emulated

using zinc::emulated::active;
using zinc::emulated::Copy;

EmulatedThreadIndex emulated_index;

void emulated_yield() {
  active->self().is_polling = true;
  active->suspend();
}
void emulated_fail(const char* why) { zinc::emulated::fail_kernel(active->kernel(), why); }
void emulated_launch_dependents() { active->launch_dependents(); }
void emulated_wait_dependency() { active->wait_dependency(); }
void emulated_sync_block() {
  zinc::emulated::BlockState& block = *active->self().block;
  active->wait(block.all, block.n_alive);
}
void emulated_named_barrier_sync(int id, int n_threads) {
  active->wait(active->self().block->some[static_cast<size_t>(id)], n_threads);
}
void emulated_sync_warp() {
  zinc::emulated::Warp& warp = active->self().warp();
  active->wait(warp.barrier, warp.n_alive);
}
const EmulatedWords* emulated_exchange(const EmulatedWords& words) {
  zinc::emulated::Warp& warp = active->self().warp();
  auto& exchanged = warp.exchanged[warp.barrier.generation % 2];
  exchanged[emulated_index.thread.x % zinc::emulated::kWarpThreads] = words;
  emulated_sync_warp();
  return exchanged.data();
}
void emulated_cluster_arrive() { active->cluster_arrive(); }
void emulated_cluster_wait() { active->cluster_wait(); }
void* emulated_map_to_rank(void* at, int rank) {
  return static_cast<char*>(at) - active->shared(emulated_index.rank) + active->shared(rank);
}

void emulated_cp_async(void* to, const void* from, int n_bytes) {
  active->self().copies.begin(Copy::of_memory(to, from, static_cast<size_t>(n_bytes)));
}
void emulated_cp_async_commit() { active->self().copies.commit(); }
void emulated_cp_async_wait(int n_left) {
  const auto complete = [](const Copy& copy) { copy.complete(active->kernel()); };
  active->self().copies.wait(static_cast<size_t>(n_left), complete);
}
void emulated_bulk_copy(void* to, const void* from, int n_bytes, const void* mbarrier) {
  active->mbarrier_copies.begin(mbarrier, Copy::of_memory(to, from, static_cast<size_t>(n_bytes)));
}
void emulated_store_async(void* to, unsigned word, const void* mbarrier) {
  active->mbarrier_copies.begin(mbarrier, Copy::of_value(to, &word, sizeof word));
}
int emulated_complete_tx(const void* mbarrier) {
  return static_cast<int>(active->mbarrier_copies.complete(mbarrier, active->kernel()));
}

void emulated_wgmma(void (*compute)(const void* of), const void* of, int n_bytes) {
  const auto* bytes = static_cast<const std::byte*>(of);
  active->self().wgmmas.begin({compute, {bytes, bytes + n_bytes}});
}
void emulated_wgmma_commit() { active->self().wgmmas.commit(); }
void emulated_wgmma_wait(int n_left) {
  active->self().wgmmas.wait(static_cast<size_t>(n_left),
                             [](const auto& product) { product.compute(product.of.data()); });
}
