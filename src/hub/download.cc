#include "hub/download.h"

#include <algorithm>
#include <ctime>
#include <thread>

#include "hub/disk_space.h"
#include "hub/file_hash.h"
#include "hub/partial_download.h"
#include "hub/range_fetch.h"
#include "hub/remote_file.h"

namespace zinc {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr int kMaxIdleProbes = 4;  // consecutive probes without a new complete chunk
constexpr int kMaxVersions = 4;    // versions of the file, each started from the first byte
constexpr int kMaxRepairs = 3;
constexpr std::string_view kReplaced =
    "the file was replaced on the server. To download the new version, use its source as the name: zinc pull "
    "hf:ORG/REPO:FILE";

class Download {
 public:
  Download(const DownloadRequest& request, const DownloadLimits& limits, const DownloadHooks& hooks)
      : request_(request), limits_(limits), hooks_(hooks) {}

  Result<Downloaded> run();

 private:
  Result<RemoteFile> find_remote();
  Status pause(int64_t pause_ms);
  Status check_remote(RemoteFile& remote) const;
  Result<PartialDownload> open_part(const RemoteFile& remote);
  Result<FetchOutcome> fetch(const RemoteFile& remote, PartialDownload& part, FetchGoal goal);
  Result<FetchOutcome> verify(const RemoteFile& remote, PartialDownload& part);
  Result<FetchOutcome> repair(const RemoteFile& remote, PartialDownload& part, const std::string& actual_sha256);
  ReadProgress verify_progress(uint64_t n_bytes) const;
  Error keeps_changing_error() const;

  const DownloadRequest& request_;
  const DownloadLimits& limits_;
  const DownloadHooks& hooks_;
  Downloaded result_;
  JournalHead version_;  // of the file, as last stated by the server
  int n_versions_ = 0, n_repairs_ = 0;
};

Status Download::pause(int64_t pause_ms) {
  const auto end = Clock::now() + std::chrono::milliseconds(pause_ms);
  while (Clock::now() < end) {
    if (hooks_.cancelled()) return fail(ErrorCode::cancelled, "interrupted");
    std::this_thread::sleep_for(std::min<Clock::duration>(std::chrono::milliseconds(50), end - Clock::now()));
  }
  return ok_status();
}

Result<RemoteFile> Download::find_remote() {
  const TransferRequest request{request_.url, request_.bearer_token, {}};
  for (int n_failures = 1;; ++n_failures) {
    ZINC_TRY(probe, probe_file(request, limits_.transfer, hooks_.cancelled));
    if (probe.file) return std::move(*probe.file);
    if (n_failures >= limits_.n_failures) {
      return fail(ErrorCode::io, "{}: {}, {} times in a row; check the network and the proxy settings, and try again",
                  display_url(request_.url), probe.transient->reason, n_failures);
    }
    if (n_failures == 1)
      hooks_.on_message(fmt::format("{}: {}; trying again", display_url(request_.url), probe.transient->reason));
    int64_t pause_ms = int64_t{limits_.first_pause_ms} << std::min(n_failures - 1, 4);
    if (const auto asked_s = retry_after_s(probe.transient->retry_after, std::time(nullptr));
        asked_s && !probe.transient->retry_after.empty()) {
      if (*asked_s > limits_.max_pause_s) {
        return fail(ErrorCode::io, "{}: the server is busy and asks to retry in {} s; try again later",
                    display_url(request_.url), *asked_s);
      }
      pause_ms = std::max(pause_ms, *asked_s * 1000);
    }
    if (Status paused = pause(pause_ms); !paused.ok()) return paused.error();
  }
}

// Compares the server's metadata with the request. If the request has a hash, the hash alone identifies the version:
// two mirrors of one file have different validators.
Status Download::check_remote(RemoteFile& remote) const {
  if (!request_.sha256.empty() && !remote.sha256.empty() && request_.sha256 != remote.sha256) {
    return fail(ErrorCode::invalid_input,
                "{}: the file on the server is not the expected one: its SHA-256 is {}, expected {}; {}",
                display_url(request_.url), remote.sha256, request_.sha256, kReplaced);
  }
  if (remote.n_bytes == 0) remote.n_bytes = request_.n_bytes;
  if (remote.n_bytes == 0) {
    return fail(ErrorCode::invalid_input,
                "{}: the server does not state the file's size, so the download cannot be verified",
                display_url(request_.url));
  }
  if (request_.n_bytes != 0 && request_.n_bytes != remote.n_bytes) {
    return fail(ErrorCode::invalid_input, "{}: the file on the server has {} bytes, expected {}; {}",
                display_url(request_.url), remote.n_bytes, request_.n_bytes, kReplaced);
  }
  if (!request_.sha256.empty()) {
    remote.sha256 = request_.sha256;
    remote.etag.clear();
    remote.last_modified.clear();
  }
  return ok_status();
}

ReadProgress Download::verify_progress(uint64_t n_bytes) const {
  return [this, n_bytes](uint64_t n_done) {
    hooks_.progress({DownloadPhase::verifying, n_bytes, n_done});
    return !hooks_.cancelled();
  };
}

Error Download::keeps_changing_error() const {
  return fail(ErrorCode::io, "{}: the file on the server keeps changing during the download; try again later",
              display_url(request_.url));
}

Result<PartialDownload> Download::open_part(const RemoteFile& remote) {
  const JournalHead version{remote.n_bytes, limits_.chunk_bytes, remote.identity()};
  // Without a validator, bytes of two versions could be mixed.
  if (version.identity.empty()) PartialDownload::remove(request_.target);
  if (version.identity.empty() || version != version_) ++n_versions_;
  if (n_versions_ > kMaxVersions) return keeps_changing_error();
  version_ = version;
  const uint64_t n_on_disk = std::min(remote.n_bytes, PartialDownload::bytes_on_disk(request_.target));
  ZINC_TRY(space, check_disk_space(request_.target.parent_path(), remote.n_bytes - n_on_disk));
  ZINC_TRY(part, PartialDownload::open(request_.target, version, verify_progress(remote.n_bytes)));
  if (part.n_discarded_bytes() > 0) {
    hooks_.on_message(fmt::format("discarding {} MB of another version of the file; starting over",
                                  part.n_discarded_bytes() / 1'000'000));
  }
  if (Status reserved = part.reserve(); !reserved.ok()) return reserved.error();
  return std::move(part);
}

Result<FetchOutcome> Download::fetch(const RemoteFile& remote, PartialDownload& part, FetchGoal goal) {
  RangeFetch fetch(request_, limits_, hooks_, remote, part);
  Result<FetchOutcome> end = fetch.run(goal);
  result_.n_fetched += fetch.n_fetched();
  if (!end.ok() || end.value() != FetchOutcome::done || goal != FetchGoal::refetch_all_chunks) return end;
  if (fetch.n_replaced() > 0) {
    hooks_.on_message(fmt::format("{} of {} chunks were corrupted in transit and have been replaced",
                                  fetch.n_replaced(), part.n_chunks()));
    return end;
  }
  PartialDownload::remove(request_.target);
  return fail(ErrorCode::invalid_input,
              "{}: after a second download the file still does not match SHA-256 {} and was deleted; try another "
              "source, or later",
              display_url(request_.url), remote.sha256);
}

// The file has the wrong hash. Chunks corrupted on disk are found through the journal, chunks corrupted in transit only
// by downloading them again.
Result<FetchOutcome> Download::repair(const RemoteFile& remote, PartialDownload& part,
                                      const std::string& actual_sha256) {
  if (++n_repairs_ > kMaxRepairs) {
    PartialDownload::remove(request_.target);
    return fail(ErrorCode::invalid_input,
                "{}: the file has SHA-256 {}, expected {}; the downloaded file was deleted, try again",
                display_url(request_.url), actual_sha256, remote.sha256);
  }
  ZINC_TRY(n_corrupt, part.drop_corrupt_chunks(verify_progress(part.head().n_bytes)));
  if (n_corrupt > 0) {
    hooks_.on_message(
        fmt::format("{} of {} chunks are corrupt on disk; downloading them again", n_corrupt, part.n_chunks()));
    return fetch(remote, part, FetchGoal::missing_chunks);
  }
  hooks_.on_message("the file has the wrong hash; searching for corrupt chunks");
  return fetch(remote, part, FetchGoal::refetch_all_chunks);
}

Result<FetchOutcome> Download::verify(const RemoteFile& remote, PartialDownload& part) {
  for (;;) {
    ZINC_TRY(actual_sha256, part.sha256(verify_progress(part.head().n_bytes)));
    if (remote.sha256.empty() || actual_sha256 == remote.sha256) {
      result_.n_bytes = part.head().n_bytes;
      result_.sha256 = actual_sha256;
      result_.is_verified = !remote.sha256.empty();
      if (Status finished = part.finish(); !finished.ok()) return finished.error();
      return FetchOutcome::done;
    }
    ZINC_TRY(repaired, repair(remote, part, actual_sha256));
    if (repaired == FetchOutcome::probe_again) return repaired;
  }
}

Result<Downloaded> Download::run() {
  int n_idle_probes = 0;
  for (;;) {
    ZINC_TRY(remote, find_remote());
    if (Status checked = check_remote(remote); !checked.ok()) return checked.error();
    if (!remote.sha256.empty()) {
      ZINC_TRY(is_complete, has_sha256(request_.target, remote.n_bytes, remote.sha256, hooks_));
      if (is_complete) return Downloaded{remote.n_bytes, remote.sha256, true, result_.n_fetched};
    }
    ZINC_TRY(part, open_part(remote));
    const uint64_t n_before = part.n_complete_bytes();
    ZINC_TRY(fetched, fetch(remote, part, FetchGoal::missing_chunks));
    const bool made_progress = part.n_complete_bytes() > n_before;
    FetchOutcome end = fetched;
    if (end == FetchOutcome::done) {
      ZINC_TRY(verified, verify(remote, part));
      end = verified;
    }
    if (end == FetchOutcome::done) return result_;
    n_idle_probes = made_progress ? 0 : n_idle_probes + 1;
    if (n_idle_probes > kMaxIdleProbes) return keeps_changing_error();
    if (Status paused = pause(limits_.first_pause_ms); !paused.ok()) return paused.error();
  }
}

}  // namespace

Result<Downloaded> download_file(const DownloadRequest& request, const DownloadLimits& limits,
                                 const DownloadHooks& hooks) {
  return Download(request, limits, hooks).run();
}

}  // namespace zinc
