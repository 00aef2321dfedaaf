// Downloads the missing chunks of a PartialDownload over several connections and journals each complete chunk. Retries
// transient errors, gives up connections that keep failing, and fails when none is left.
#pragma once

#include <deque>

#include "hub/download.h"
#include "hub/partial_download.h"
#include "hub/remote_file.h"

namespace zinc {

enum class FetchOutcome : uint8_t {
  done,
  probe_again,  // the file may have changed on the server: probe it again
};

// Which chunks to download.
enum class FetchGoal : uint8_t {
  missing_chunks,
  // All chunks, compared with those on disk; a different one replaces the old.
  refetch_all_chunks,
};

class RangeFetch {
 public:
  RangeFetch(const DownloadRequest& request, const DownloadLimits& limits, const DownloadHooks& hooks,
             const RemoteFile& remote, PartialDownload& part);
  ~RangeFetch();
  RangeFetch(const RangeFetch&) = delete;
  RangeFetch& operator=(const RangeFetch&) = delete;

  Result<FetchOutcome> run(FetchGoal goal);

  uint64_t n_fetched() const { return n_fetched_; }
  uint64_t n_replaced() const { return n_replaced_; }  // chunks that differed during refetch_all_chunks

 private:
  struct Connection;
  struct ChunkRange {  // chunks [chunk, end_chunk), in order; `position` is the next byte
    uint64_t chunk, end_chunk, position;
    Sha256 hash = {};                  // of the current chunk, up to position
    std::vector<std::byte> kept = {};  // its bytes, if they are only compared
  };

  void plan_ranges(FetchGoal goal);
  uint64_t range_chunks() const;
  void start_idle();
  bool on_body(Connection& connection, const ResponseHead& head, std::span<const std::byte> bytes);
  Status append_bytes(ChunkRange& chunks, std::span<const std::byte> bytes);
  Status end_chunk(ChunkRange& chunks);
  Status check_reply(Connection& connection, const ResponseHead& head);
  Status finish(Connection& connection, const FinishedTransfer& finished);
  Status retry_later(Connection& connection, const std::string& reason, const std::string& retry_after);
  void report() const;

  const DownloadRequest& request_;
  const DownloadLimits& limits_;
  const DownloadHooks& hooks_;
  const RemoteFile& remote_;
  PartialDownload& part_;
  FetchGoal goal_ = FetchGoal::missing_chunks;
  TransferSet transfers_;
  std::vector<std::unique_ptr<Connection>> connections_;
  std::deque<ChunkRange> waiting_;
  uint64_t n_fetched_ = 0, n_replaced_ = 0, n_compared_ = 0;
  bool probe_again_ = false;
};

}  // namespace zinc
