// Fetches one file over HTTP in parallel ranges and puts it at its place, whole and verified, or not at all.
//
// Every chunk that arrived is journalled with its hash (hub/part_file.h): a cut, a stall, Ctrl-C or kill -9 costs at
// most the chunks then under way. A file that changes on the server is noticed and begun anew; bytes damaged on the
// disk, and only these, are fetched again. Ends in bounded time on any server. The caller holds the target's lock.
//
// A target that is there is not fetched again if it has the stated hash or, where none is stated, if the journal of its
// own download vouches for it: PartFile::remove(target) ends that, once the caller has noted what is there.
#pragma once

#include <filesystem>
#include <functional>

#include "hub/transfer.h"

namespace zinc {

struct DownloadRequest {
  std::string url;
  std::string bearer_token;
  std::filesystem::path target;  // its folder exists
  uint64_t n_bytes = 0;          // 0: what the server says
  std::string sha256;            // of the file, whatever else tells versions apart; empty: what the server states
};

struct DownloadLimits {
  TransferLimits transfer;
  uint64_t chunk_bytes = uint64_t{4} << 20;  // what a kill may cost, per connection
  int max_chunks_per_request = 16;
  int n_connections = 8;
  int n_failures = 6;        // in a row and without progress, until a connection is given up
  int first_pause_ms = 500;  // between tries; doubles up to eight seconds
  int max_pause_s = 120;     // a server that asks to wait longer is not waited for
};

enum class DownloadPhase : uint8_t { fetching, checking };
struct DownloadProgress {
  DownloadPhase phase = DownloadPhase::fetching;
  uint64_t n_bytes = 0, n_done = 0;
};

struct DownloadHooks {
  std::function<void(const DownloadProgress&)> progress = [](const DownloadProgress&) {};  // several times a second
  std::function<void(std::string_view line)> say = [](std::string_view) {};                // what a person should know
  std::function<bool()> cancelled = [] { return false; };
};

struct Downloaded {
  uint64_t n_bytes = 0;
  std::string sha256;       // of the file as it lies there
  bool was_stated = false;  // the caller or the server had said this hash before
  uint64_t n_fetched = 0;   // body bytes taken this time, whether kept or not
};

Result<Downloaded> download_file(const DownloadRequest& request, const DownloadLimits& limits,
                                 const DownloadHooks& hooks);

}  // namespace zinc
