// A worker as rank 0 sees it: calls run there one after the other, in the order in which they are sent. Any thread.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>

#include "backend/mpi/messages.h"
#include "backend/mpi/world.h"
#include "base/sha256.h"
#include "graph/graph_blob.h"

namespace zinc::mpi {

class RemoteRank {
 public:
  RemoteRank(World& world, int rank) : world_(world), rank_(rank) {}

  World& world() const { return world_; }
  int rank() const { return rank_; }
  ObjectId new_id();

  // Sends a request. A failure is that of all later replies.
  uint64_t send(Call call, ObjectId object, BlobWriter&& arguments = {});
  Result<Message> reply(uint64_t number);  // waits for it: the results
  Result<Message> call(Call call, ObjectId object, BlobWriter&& arguments = {});

  void add_file(ObjectId file, std::vector<std::span<const std::byte>> shards);
  void remove_file(ObjectId file);
  Result<WeightLocation> locate(const TensorView& weight);

 private:
  World& world_;
  int rank_;
  std::mutex mutex_;
  ObjectId last_id_ = 0;
  uint64_t last_number_ = 0;
  std::map<uint64_t, Result<Message>> replies_;  // not yet taken
  std::map<ObjectId, std::vector<std::span<const std::byte>>> files_;
};

// Of rank 0: every worker of the world.
std::span<const std::unique_ptr<RemoteRank>> remote_ranks(World& world);

// A file that all workers have mapped from the same path: graphs refer to its weights.
class RemoteFile {
 public:
  // Fails if a worker's file is missing or another one. The shards must be mapped as long as the result lives.
  static Result<std::unique_ptr<RemoteFile>> open(World& world, std::span<const std::string> paths,
                                                  const std::vector<std::span<const std::byte>>& shards);
  RemoteFile(const RemoteFile&) = delete;
  RemoteFile& operator=(const RemoteFile&) = delete;
  ~RemoteFile();

 private:
  explicit RemoteFile(World& world) : world_(world) {}
  World& world_;
  std::vector<ObjectId> ids_;  // by worker
};

}  // namespace zinc::mpi
