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
constexpr int kIdleRounds = 1000;  // of threads that only ask whether they may go on

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
  std::array<unsigned, kWarpThreads> given{};
  std::vector<Thread*> turns;
};

struct RunningBlock {
  Block block;
  Barrier all;
  std::array<Barrier, kNamedBarriers> some;
  std::vector<Warp> warps;
  int n_alive;
  std::vector<Warp*> turns{};
  std::vector<char> shared{};  // what its memory held when it was left; nothing before it was begun
  bool lets_next_start = false;
};

struct Product {
  void (*compute)(const void* of);
  std::vector<std::byte> of;
};

struct Thread {
  boost::context::fiber fiber{};
  RunningBlock* block;
  EmulatedPlace place;
  const Barrier* waits_at = nullptr;
  unsigned generation = 0;  // of the barrier it waits at
  unsigned cluster_generation = 0;
  bool is_idle = false, has_ended = false;
  Sets<Copy> copies{};
  Sets<Product> products{};
  Warp& warp() const { return block->warps[place.thread.x / kWarpThreads]; }
};

boost::context::pooled_fixedsize_stack& stacks() {
  static boost::context::pooled_fixedsize_stack pool(kStackBytes);
  return pool;
}

}  // namespace

class Cluster::Running {
 public:
  Running(const LaunchFacts& launch, std::vector<Block> blocks);
  void run(Goal goal, bool have_previous_ended);
  bool has_ended() const { return n_alive_ == 0; }
  bool lets_next_start() const { return std::ranges::all_of(blocks_, &RunningBlock::lets_next_start); }

  bool has_waited() const { return has_waited_; }

  // For the thread whose turn it is.
  Thread& self() { return *self_; }
  void suspend() { host_ = std::move(host_).resume(); }
  void wait(Barrier& barrier, int n_needed);
  void cluster_arrives();
  void wait_for_cluster() { wait_for(cluster_, self().cluster_generation); }
  void wait_for_previous();
  void let_next_start();
  const std::string& kernel() const { return launch_.kernel; }
  char* shared(int rank) const { return blocks_[static_cast<size_t>(rank)].block.shared.data(); }
  ReportedCopies reported;

 private:
  void add_threads(RunningBlock& block, int rank);
  bool is_at(Goal goal) const { return has_ended() || (goal == Goal::lets_next_start && lets_next_start()); }
  // Turns until all wait for others; whether anybody got anywhere. A warp is not left before that, nor a block: the
  // further one is ahead of another, the more a missing barrier shows.
  template <class T, class Take>
  bool exhaust(std::vector<T*>& turns, Goal goal, Take&& take);
  bool exhaust(Goal goal);
  bool may_go_on(const Thread& thread) const;
  bool resume(Thread& thread);
  void end(Thread& thread);
  void wait_for(const Barrier& barrier, unsigned generation);
  void bring_memory();
  void take_memory_along();
  void check_behind() const;
  [[noreturn]] void report_hang() const;

  const LaunchFacts& launch_;
  std::vector<RunningBlock> blocks_;
  std::deque<Thread> threads_;
  std::vector<RunningBlock*> turns_;
  boost::context::fiber host_;
  Thread* self_ = nullptr;
  Barrier cluster_, previous_;
  int n_alive_;
  bool have_previous_ended_ = false, has_waited_ = false;
  int n_held_ = 0;  // threads that wait for the launches before
};

namespace {

Cluster::Running* running = nullptr;  // one at a time

}  // namespace

Cluster::Running::Running(const LaunchFacts& launch, std::vector<Block> blocks)
    : launch_(launch), n_alive_(static_cast<int>(blocks.size() * launch.n_threads)) {
  for (Block& block : blocks) {
    blocks_.push_back({.block = std::move(block),
                       .all = {},
                       .some = {},
                       .warps = std::vector<Warp>(launch.n_threads / kWarpThreads),
                       .n_alive = static_cast<int>(launch.n_threads)});
  }
  for (size_t rank = 0; rank < blocks_.size(); ++rank) add_threads(blocks_[rank], static_cast<int>(rank));
  for (RunningBlock& block : blocks_) {
    turns_.push_back(&block);
    for (Warp& warp : block.warps) block.turns.push_back(&warp);
    Order::of_process().arrange(block.turns);
  }
  Order::of_process().arrange(turns_);
}

void Cluster::Running::add_threads(RunningBlock& block, int rank) {
  for (unsigned i = 0; i < launch_.n_threads; ++i) {
    const EmulatedPlace place = {{i, 0, 0}, block.block.index, launch_.grid, {launch_.n_threads, 1, 1}, rank};
    Thread& thread = threads_.emplace_back(Thread{.block = &block, .place = place});
    thread.fiber = boost::context::fiber(std::allocator_arg, stacks(), [this, &thread](boost::context::fiber&& host) {
      host_ = std::move(host);
      thread.block->block.body();
      end(thread);
      return std::move(host_);
    });
    thread.warp().turns.push_back(&thread);
  }
  for (Warp& warp : block.warps) Order::of_process().arrange(warp.turns);
}

void Cluster::Running::run(Goal goal, bool have_previous_ended) {
  if (is_at(goal)) return;
  have_previous_ended_ = have_previous_ended;
  if (have_previous_ended) {
    previous_.release();
    n_held_ = 0;
  }
  running = this;
  bring_memory();
  for (int n_idle = 0; !is_at(goal) && (exhaust(goal) || n_held_ == 0); ++n_idle) {
    if (n_idle > kIdleRounds) report_hang();
  }
  if (has_ended()) {
    check_behind();
  } else {
    take_memory_along();
  }
  running = nullptr;
}

template <class T, class Take>
bool Cluster::Running::exhaust(std::vector<T*>& turns, Goal goal, Take&& take) {
  bool has_moved = false;
  for (bool goes_on = true; goes_on;) {
    goes_on = false;
    for (T* one : turns) {
      goes_on = take(*one) || goes_on;
      if (is_at(goal)) return true;
    }
    has_moved = has_moved || goes_on;
    Order::of_process().arrange_again(turns);
  }
  return has_moved;
}

bool Cluster::Running::exhaust(Goal goal) {
  return exhaust(turns_, goal, [&](RunningBlock& block) {
    return exhaust(block.turns, goal, [&](Warp& warp) {
      return exhaust(warp.turns, goal, [&](Thread& thread) { return resume(thread); });
    });
  });
}

bool Cluster::Running::may_go_on(const Thread& thread) const {
  return !thread.has_ended && (!thread.waits_at || thread.waits_at->generation != thread.generation);
}

// Whether it did more than ask whether it may go on.
bool Cluster::Running::resume(Thread& thread) {
  if (!may_go_on(thread)) return false;
  thread.waits_at = nullptr;
  thread.is_idle = false;
  self_ = &thread;
  emulated_place = thread.place;
  thread.fiber = std::move(thread.fiber).resume();
  return !thread.is_idle;
}

// Those who wait for all that are left need not wait for this one any more.
void Cluster::Running::end(Thread& thread) {
  thread.has_ended = true;
  --n_alive_;
  if (n_alive_ == 0 && !reported.empty()) refuse(kernel(), "ends while copies to its memory are under way");
  RunningBlock& block = *thread.block;
  if (--block.n_alive > 0 && block.all.n_arrived == block.n_alive) block.all.release();
  Warp& warp = thread.warp();
  if (--warp.n_alive > 0 && warp.barrier.n_arrived == warp.n_alive) warp.barrier.release();
  if (block.n_alive == 0) block.lets_next_start = true;
}

void Cluster::Running::wait(Barrier& barrier, int n_needed) {
  const unsigned generation = barrier.generation;
  if (++barrier.n_arrived == n_needed) return barrier.release();
  wait_for(barrier, generation);
}

void Cluster::Running::wait_for(const Barrier& barrier, unsigned generation) {
  if (barrier.generation != generation) return;
  self().waits_at = &barrier;
  self().generation = generation;
  suspend();
}

void Cluster::Running::cluster_arrives() {
  self().cluster_generation = cluster_.generation;
  if (++cluster_.n_arrived == static_cast<int>(threads_.size())) cluster_.release();
}

void Cluster::Running::wait_for_previous() {
  has_waited_ = true;
  if (have_previous_ended_) return;
  ++n_held_;
  wait_for(previous_, previous_.generation);
}

// The first thread of a block speaks for all; it stops there, so that the next launch comes before what it does next.
void Cluster::Running::let_next_start() {
  if (self().block->lets_next_start) return;
  self().block->lets_next_start = true;
  suspend();
}

void Cluster::Running::bring_memory() {
  for (RunningBlock& block : blocks_) {
    if (block.shared.empty()) {
      std::ranges::fill(block.block.shared, static_cast<char>(kNobodysByte));
    } else {
      std::ranges::copy(block.shared, block.block.shared.begin());
    }
  }
}

void Cluster::Running::take_memory_along() {
  for (RunningBlock& block : blocks_) block.shared.assign(block.block.shared.begin(), block.block.shared.end());
}

void Cluster::Running::check_behind() const {
  for (const RunningBlock& block : blocks_) {
    const auto is_nobodys = [](char byte) { return byte == static_cast<char>(kNobodysByte); };
    if (!std::ranges::all_of(block.block.behind, is_nobodys)) refuse(kernel(), "writes behind its shared memory");
  }
}

void Cluster::Running::report_hang() const {
  const auto n_idle = std::ranges::count_if(threads_, &Thread::is_idle);
  std::fprintf(stderr, "emulated GPU: kernel %s hangs: %d threads are left, %d of them ask for what never comes\n",
               kernel().c_str(), n_alive_, static_cast<int>(n_idle));
  std::abort();
}

Cluster::Cluster(const LaunchFacts& launch, std::vector<Block> blocks)
    : running_(std::make_unique<Running>(launch, std::move(blocks))) {}
Cluster::~Cluster() = default;
void Cluster::run(Goal goal, bool have_previous_ended) { running_->run(goal, have_previous_ended); }
bool Cluster::has_ended() const { return running_->has_ended(); }
bool Cluster::lets_next_start() const { return running_->lets_next_start(); }
bool Cluster::has_waited() const { return running_->has_waited(); }

}  // namespace zinc::emulated

using zinc::emulated::Copy;
using zinc::emulated::running;

EmulatedPlace emulated_place;

void emulated_yield() {
  running->self().is_idle = true;
  running->suspend();
}
void emulated_refuse(const char* why) { zinc::emulated::refuse(running->kernel(), why); }
void emulated_let_next_start() { running->let_next_start(); }
void emulated_wait_for_previous() { running->wait_for_previous(); }
void emulated_meet_block() {
  zinc::emulated::RunningBlock& block = *running->self().block;
  running->wait(block.all, block.n_alive);
}
void emulated_meet_some(int id, int n_threads) {
  running->wait(running->self().block->some[static_cast<size_t>(id)], n_threads);
}
void emulated_meet_warp() {
  zinc::emulated::Warp& warp = running->self().warp();
  running->wait(warp.barrier, warp.n_alive);
}
unsigned emulated_exchange(unsigned word, int lane) {
  zinc::emulated::Warp& warp = running->self().warp();
  warp.given[emulated_place.thread.x % zinc::emulated::kWarpThreads] = word;
  emulated_meet_warp();
  const unsigned taken = warp.given[static_cast<size_t>(lane)];
  emulated_meet_warp();
  return taken;
}
void emulated_cluster_arrives() { running->cluster_arrives(); }
void emulated_wait_for_cluster() { running->wait_for_cluster(); }
void* emulated_at_rank(void* at, int rank) {
  return static_cast<char*>(at) - running->shared(emulated_place.rank) + running->shared(rank);
}

void emulated_begin_copy(void* to, const void* from, int n_bytes) {
  running->self().copies.begin(Copy::of_memory(to, from, static_cast<size_t>(n_bytes)));
}
void emulated_end_copies() { running->self().copies.end_set(); }
void emulated_await_copies(int n_left) {
  const auto arrive = [](const Copy& copy) { copy.arrive(running->kernel()); };
  running->self().copies.await(static_cast<size_t>(n_left), arrive);
}
void emulated_begin_reported_copy(void* to, const void* from, int n_bytes, const void* gate) {
  running->reported.begin(gate, Copy::of_memory(to, from, static_cast<size_t>(n_bytes)));
}
void emulated_begin_reported_store(void* to, unsigned word, const void* gate) {
  running->reported.begin(gate, Copy::of_value(to, &word, sizeof word));
}
int emulated_receive(const void* gate) { return static_cast<int>(running->reported.arrive(gate, running->kernel())); }

void emulated_begin_product(void (*compute)(const void* of), const void* of, int n_bytes) {
  const auto* bytes = static_cast<const std::byte*>(of);
  running->self().products.begin({compute, {bytes, bytes + n_bytes}});
}
void emulated_end_products() { running->self().products.end_set(); }
void emulated_await_products(int n_left) {
  running->self().products.await(static_cast<size_t>(n_left),
                                 [](const auto& product) { product.compute(product.of.data()); });
}
