// The processes that mpirun started, one rank each (docs/adr/0059). Rank 0 runs the command, the other ranks, workers,
// run devices for it. Messages are arrays of bytes between rank 0 and a worker; they arrive in order. Every process
// sends a heartbeat from a thread of its own: a rank without one is lost, and with it the world. Any thread.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "backend/mpi/open_mpi.h"
#include "base/result.h"

namespace zinc::mpi {

using Message = std::vector<std::byte>;

struct Host {
  std::string name;
  std::string boot_id;  // of the running kernel: the same for ranks that share a machine's memory
};

class World {
 public:
  // Waits for all ranks. Fails on each of them if they are not the same program. Once per process, never destroyed.
  static Result<World*> join();
  static World* joined();  // nullptr: this process is on its own

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(peers_.size()); }
  const Host& host(int rank) const { return peers_[static_cast<size_t>(rank)]->host; }  // on a worker: only its own
  std::string name_of(int rank) const;                                                  // "rank 1 (node7)"
  int local_rank(int rank) const;  // its number among the ranks of its host
  int n_local_ranks(int rank) const;

  Status send(int rank, Message message);  // returns when the message has left
  std::optional<Message> try_receive(int rank);
  Result<Message> receive(int rank);
  // Why the world cannot go on.
  std::optional<Error> lost() const;
  // Called once when that happens, on a thread of the world; at once if it has happened. When set_on_lost() returns,
  // an earlier callback is not running.
  void set_on_lost(std::function<void(const Error&)> on_lost);
  // At the end of the program, by all ranks: waits for the others, unless one is lost.
  void leave();

 private:
  struct Transfer {  // to or from another rank
    Message message;
    Handle request = nullptr;
  };
  struct Peer {
    Host host;
    std::deque<Message> received;
    std::optional<Transfer> incoming;
    Transfer heartbeat;  // the last one sent
    int n_silent_ticks = 0;
  };
  World(const OpenMpi& mpi, int rank, int size);
  Status exchange_hellos();
  void start_send(int rank, int tag, Transfer& transfer);
  bool is_done(Transfer& transfer);
  void receive_available(int rank);
  std::optional<int> probe(int rank, int tag);
  void exchange_heartbeats();
  void watch();
  void lose(Error why);
  Peer& peer(int rank) { return *peers_[static_cast<size_t>(rank)]; }
  bool is_partner(int rank) const { return rank != rank_ && (rank == 0 || rank_ == 0); }

  OpenMpi mpi_;
  int rank_;
  std::mutex mpi_mutex_;  // of all MPI calls, and of the peers
  std::vector<std::unique_ptr<Peer>> peers_;
  std::vector<std::unique_ptr<Transfer>> abandoned_;  // their memory belongs to MPI until the process ends
  mutable std::mutex lost_mutex_;
  std::optional<Error> lost_;
  std::function<void(const Error&)> on_lost_;
  std::mutex stop_mutex_;
  std::condition_variable stop_condition_;
  bool stops_ = false;
  std::thread watcher_;
};

}  // namespace zinc::mpi
