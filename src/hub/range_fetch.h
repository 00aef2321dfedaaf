// The part of a download that moves bytes: fetches the chunks a PartFile misses over several connections at once, and
// journals each as it is whole. Keeps going through faults that may pass, gives up on a connection that only fails, and
// ends when none is left.
#pragma once

#include <deque>

#include "hub/download.h"
#include "hub/part_file.h"
#include "hub/remote_file.h"

namespace zinc {

enum class FetchEnd : uint8_t {
  done,
  look_again,  // what the server said about the file may hold no longer: ask it again
};

// What to fetch.
enum class FetchGoal : uint8_t {
  missing_chunks,
  // Every chunk, to compare with what lies there; one that differs takes its place.
  all_chunks_again,
};

class RangeFetch {
 public:
  RangeFetch(const DownloadRequest& request, const DownloadLimits& limits, const DownloadHooks& hooks,
             const RemoteFile& remote, PartFile& part);
  ~RangeFetch();
  RangeFetch(const RangeFetch&) = delete;
  RangeFetch& operator=(const RangeFetch&) = delete;

  Result<FetchEnd> run(FetchGoal goal);

  uint64_t n_fetched() const { return n_fetched_; }
  uint64_t n_replaced() const { return n_replaced_; }  // chunks that differed when all were fetched again

 private:
  struct Connection;
  struct Run {  // chunks [chunk, end_chunk), fetched in order; `position` is the next byte
    uint64_t chunk, end_chunk, position;
    Sha256 hash = {};                  // of the current chunk, up to position
    std::vector<std::byte> kept = {};  // its bytes, where they are only compared
  };

  void plan_runs(FetchGoal goal);
  uint64_t run_length() const;
  void start_idle();
  bool take_body(Connection& connection, const ReplyHead& head, std::span<const std::byte> bytes);
  Status take_bytes(Run& run, std::span<const std::byte> bytes);
  Status end_chunk(Run& run);
  Status check_reply(Connection& connection, const ReplyHead& head);
  Status finish(Connection& connection, const FinishedTransfer& finished);
  Status retry_later(Connection& connection, const std::string& reason, const std::string& retry_after);
  void report() const;

  const DownloadRequest& request_;
  const DownloadLimits& limits_;
  const DownloadHooks& hooks_;
  const RemoteFile& remote_;
  PartFile& part_;
  FetchGoal goal_ = FetchGoal::missing_chunks;
  TransferSet transfers_;
  std::vector<std::unique_ptr<Connection>> connections_;
  std::deque<Run> waiting_;
  uint64_t n_fetched_ = 0, n_replaced_ = 0, n_compared_ = 0;
  bool look_again_ = false;
};

}  // namespace zinc
