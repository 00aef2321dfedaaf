#include "backend/mpi/world.h"

#include <array>
#include <fstream>
#include <limits>

#include "backend/mpi/backoff.h"
#include "base/blob.h"
#include "base/job_signals.h"
#include "base/sha256.h"
#include "base/version.h"

namespace zinc::mpi {
namespace {

constexpr int kDataTag = 1, kHeartbeatTag = 2;
constexpr std::chrono::milliseconds kTick(100);
// Ticks of this process without a heartbeat of another: a stopped process does not count. After SIGCONT, by which
// mpirun announces that it ends the job (one second before SIGTERM, two before SIGKILL), fewer are enough for a while.
constexpr int kMaxSilentTicks = 150, kMaxSilentTicksAtEnd = 5, kEndTicks = 30;

World* g_world = nullptr;

std::string line_of(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

}  // namespace

World::World(const OpenMpi& mpi, int rank, int size) : mpi_(mpi), rank_(rank) {
  for (int r = 0; r < size; ++r) {
    peers_.push_back(std::make_unique<Peer>());
    peers_.back()->heartbeat.request = mpi_.no_request;
  }
  peer(rank).host = {.name = line_of("/proc/sys/kernel/hostname"),
                     .boot_id = line_of("/proc/sys/kernel/random/boot_id")};
}

World* World::joined() { return g_world; }

Result<World*> World::join() {
  ZINC_CHECK(!g_world);
  ZINC_TRY(mpi, OpenMpi::load());
  int provided = 0, rank = 0, size = 0;
  const bool is_started = mpi.init_thread(nullptr, nullptr, kThreadSerialized, &provided) == kSuccess &&
                          mpi.comm_rank(mpi.world, &rank) == kSuccess && mpi.comm_size(mpi.world, &size) == kSuccess &&
                          mpi.comm_set_errhandler(mpi.world, mpi.errors_return) == kSuccess;
  if (!is_started) return fail(ErrorCode::unavailable, "Open MPI could not be started");
  if (provided < kThreadSerialized) {
    return fail(ErrorCode::unsupported, "this Open MPI was built without threads (MPI_THREAD_SERIALIZED)");
  }
  if (size < 2) {
    mpi.finalize();
    return fail(ErrorCode::invalid_input,
                "--split-hosts has nothing to split over: this is the only process; start several, for example with "
                "`mpirun -n 2 zinc ...`");
  }
  watch_sigcont();
  g_world = new World(mpi, rank, size);
  g_world->watcher_ = std::thread([] { g_world->watch(); });
  if (Status same = g_world->exchange_hellos(); !same.ok()) {
    g_world->leave();
    return same.error();
  }
  return g_world;
}

// Nodes of graphs and structs of messages are sent as they are in memory: all ranks must be the same program.
Status World::exchange_hellos() {
  ZINC_TRY(program, sha256_of_file("/proc/self/exe"));
  if (rank_ > 0) {
    BlobWriter hello;
    hello.put_text(program);
    hello.put_text(version_text());
    hello.put_text(host(rank_).name);
    hello.put_text(host(rank_).boot_id);
    if (Status sent = send(0, hello.take()); !sent.ok()) return sent;
    ZINC_TRY(answer, receive(0));
    const std::string refused = BlobReader(answer).get_text();
    return refused.empty() ? ok_status() : fail(ErrorCode::invalid_input, "{}", refused);
  }
  std::string refused;
  for (int r = 1; r < size(); ++r) {
    ZINC_TRY(message, receive(r));
    BlobReader hello(message);
    const std::string its_program = hello.get_text(), its_version = hello.get_text();
    peer(r).host.name = hello.get_text();
    peer(r).host.boot_id = hello.get_text();
    if (its_program == program) continue;
    refused = fmt::format("{} runs another build of zinc: {} there, {} on {}; install the same file on every host",
                          name_of(r), its_version, version_text(), name_of(0));
  }
  for (int r = 1; r < size(); ++r) {
    BlobWriter answer;
    answer.put_text(refused);
    if (Status sent = send(r, answer.take()); !sent.ok()) return sent;
  }
  return refused.empty() ? ok_status() : fail(ErrorCode::invalid_input, "{}", refused);
}

std::string World::name_of(int rank) const {
  const std::string& name = host(rank).name;
  return name.empty() ? fmt::format("rank {}", rank) : fmt::format("rank {} ({})", rank, name);
}

int World::local_rank(int rank) const {
  int n = 0;
  for (int r = 0; r < rank; ++r) n += host(r).boot_id == host(rank).boot_id;
  return n;
}

int World::n_local_ranks(int rank) const {
  int n = 0;
  for (int r = 0; r < size(); ++r) n += host(r).boot_id == host(rank).boot_id;
  return n;
}

void World::start_send(int rank, int tag, Transfer& transfer) {
  const int n = static_cast<int>(transfer.message.size());
  if (mpi_.isend(transfer.message.data(), n, mpi_.byte, rank, tag, mpi_.world, &transfer.request) == kSuccess) return;
  lose(fail(ErrorCode::device_lost, "{} cannot be reached", name_of(rank)));
}

bool World::is_done(Transfer& transfer) {
  int is_done = 0;
  MessageStatus status;
  if (mpi_.test(&transfer.request, &is_done, &status) != kSuccess) return false;  // its heartbeats end as well
  return is_done != 0;
}

// The bytes of the next message of this rank and tag, if there is one.
std::optional<int> World::probe(int rank, int tag) {
  int is_there = 0, n_bytes = 0;
  MessageStatus status;
  if (mpi_.iprobe(rank, tag, mpi_.world, &is_there, &status) != kSuccess || is_there == 0) return std::nullopt;
  if (mpi_.get_count(&status, mpi_.byte, &n_bytes) != kSuccess) return std::nullopt;
  return n_bytes;
}

void World::receive_available(int rank) {
  Peer& from = peer(rank);
  while (true) {
    if (from.incoming) {
      if (!is_done(*from.incoming)) return;
      from.received.push_back(std::move(from.incoming->message));
      from.incoming.reset();
    }
    const std::optional<int> n_bytes = probe(rank, kDataTag);
    if (!n_bytes) return;
    Transfer& transfer = from.incoming.emplace(Transfer{});
    transfer.message.resize(static_cast<size_t>(*n_bytes));
    if (mpi_.irecv(transfer.message.data(), *n_bytes, mpi_.byte, rank, kDataTag, mpi_.world, &transfer.request) !=
        kSuccess) {
      return lose(fail(ErrorCode::device_lost, "{} cannot be reached", name_of(rank)));
    }
  }
}

// Meanwhile it receives: two ranks that send each other large messages would wait forever.
Status World::send(int rank, Message message) {
  if (message.size() > static_cast<size_t>(std::numeric_limits<int>::max())) {
    return fail(ErrorCode::unsupported, "a message of {} bytes is too large for MPI", message.size());
  }
  auto transfer = std::make_unique<Transfer>(Transfer{std::move(message), nullptr});
  bool is_started = false;
  for (Backoff backoff;; backoff.pause()) {
    if (const std::optional<Error> why = lost()) {
      const std::lock_guard lock(mpi_mutex_);
      if (is_started) abandoned_.push_back(std::move(transfer));
      return *why;
    }
    const std::lock_guard lock(mpi_mutex_);
    if (!is_started) start_send(rank, kDataTag, *transfer);
    is_started = true;
    if (is_done(*transfer)) return ok_status();
    receive_available(rank);
  }
}

std::optional<Message> World::try_receive(int rank) {
  const std::lock_guard lock(mpi_mutex_);
  Peer& from = peer(rank);
  receive_available(rank);
  if (from.received.empty()) return std::nullopt;
  Message message = std::move(from.received.front());
  from.received.pop_front();
  return message;
}

Result<Message> World::receive(int rank) {
  for (Backoff backoff;; backoff.pause()) {
    if (std::optional<Message> message = try_receive(rank)) return std::move(*message);
    if (const std::optional<Error> why = lost()) return *why;
  }
}

std::optional<Error> World::lost() const {
  const std::lock_guard lock(lost_mutex_);
  return lost_;
}

void World::lose(Error why) {
  const std::lock_guard lock(lost_mutex_);
  if (!lost_) lost_ = std::move(why);
}

void World::set_on_lost(std::function<void(const Error&)> on_lost) {
  const std::lock_guard lock(lost_mutex_);
  on_lost_ = std::move(on_lost);
}

void World::exchange_heartbeats() {
  const std::lock_guard lock(mpi_mutex_);
  for (int r = 0; r < size(); ++r) {
    if (!is_partner(r)) continue;
    Peer& other = peer(r);
    ++other.n_silent_ticks;
    if (is_done(other.heartbeat)) {
      other.heartbeat.message.assign(1, std::byte{});
      start_send(r, kHeartbeatTag, other.heartbeat);
    }
    while (probe(r, kHeartbeatTag)) {
      std::byte beat;
      Transfer transfer;
      MessageStatus status;
      int is_received = 0;
      if (mpi_.irecv(&beat, 1, mpi_.byte, r, kHeartbeatTag, mpi_.world, &transfer.request) != kSuccess) break;
      while (is_received == 0 && mpi_.test(&transfer.request, &is_received, &status) == kSuccess) {  // it is here
      }
      other.n_silent_ticks = 0;
    }
  }
}

void World::watch() {
  int n_end_ticks = 0;
  std::unique_lock stop_lock(stop_mutex_);
  while (!stop_condition_.wait_for(stop_lock, kTick, [this] { return stops_; })) {
    if (take_sigcont()) n_end_ticks = kEndTicks;
    if (n_end_ticks > 0) --n_end_ticks;
    exchange_heartbeats();
    const int max_silent_ticks = n_end_ticks > 0 ? kMaxSilentTicksAtEnd : kMaxSilentTicks;
    for (int r = 0; r < size(); ++r) {
      if (is_partner(r) && peer(r).n_silent_ticks > max_silent_ticks) {
        lose(fail(ErrorCode::device_lost, "{} of --split-hosts is lost: no heartbeat for {:.1f} s", name_of(r),
                  std::chrono::duration<double>(kTick * peer(r).n_silent_ticks).count()));
      }
    }
    const std::lock_guard lock(lost_mutex_);
    if (!lost_) continue;
    if (on_lost_) on_lost_(*lost_);
    on_lost_ = {};
  }
}

void World::leave() {
  {
    const std::lock_guard lock(stop_mutex_);
    stops_ = true;
  }
  stop_condition_.notify_all();
  watcher_.join();
  if (!lost()) mpi_.finalize();
}

}  // namespace zinc::mpi
