// Downloads one file over HTTP in parallel ranges. The target appears complete and verified, or not at all.
//
// Every complete chunk is journaled with its hash (hub/partial_download.h): a cut connection, a stall, Ctrl-C or kill
// -9 costs at most the chunks in flight. If the file changes on the server, the download starts over; chunks corrupted
// on disk, and only these, are downloaded again. Ends in bounded time on any server. The caller holds the target's
// lock.
//
// An existing target is not downloaded again if it has the expected hash or, if no hash is known, if the journal of its
// download matches it. PartialDownload::remove(target) deletes the journal once the caller has recorded the file.
#pragma once

#include <filesystem>
#include <functional>

#include "hub/transfer.h"

namespace zinc {

struct DownloadRequest {
  std::string url;
  std::string bearer_token;
  std::filesystem::path target;  // its folder must exist
  uint64_t n_bytes = 0;          // 0: as stated by the server
  std::string sha256;            // of the file; empty: as stated by the server
};

struct DownloadLimits {
  TransferLimits transfer;
  uint64_t chunk_bytes = uint64_t{4} << 20;  // lost at most by a kill, per connection
  int max_chunks_per_request = 16;
  int n_connections = 8;
  int n_failures = 6;        // consecutive failures without progress until a connection is given up
  int first_pause_ms = 500;  // between attempts; doubles up to eight seconds
  int max_pause_s = 120;     // a longer Retry-After is an error
};

// unpacking: of a package; converting and quantizing: of a model, which `zinc convert` and `zinc quantize` show with
// the same bar.
enum class DownloadPhase : uint8_t { downloading, verifying, unpacking, converting, quantizing };
struct DownloadProgress {
  DownloadPhase phase = DownloadPhase::downloading;
  uint64_t n_bytes = 0, n_done = 0;
};

struct DownloadHooks {
  std::function<void(const DownloadProgress&)> progress = [](const DownloadProgress&) {};  // several times a second
  std::function<void(std::string_view line)> on_message = [](std::string_view) {};         // for the user
  std::function<bool()> cancelled = [] { return false; };
};

struct Downloaded {
  uint64_t n_bytes = 0;
  std::string sha256;        // of the file on disk
  bool is_verified = false;  // compared with a hash stated by the caller or the server
  uint64_t n_fetched = 0;    // body bytes received this time, kept or not
};

Result<Downloaded> download_file(const DownloadRequest& request, const DownloadLimits& limits,
                                 const DownloadHooks& hooks);

}  // namespace zinc
