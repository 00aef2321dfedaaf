#include "hub/download.h"

#include <algorithm>
#include <ctime>
#include <thread>

#include "hub/disk_space.h"
#include "hub/file_hash.h"
#include "hub/part_file.h"
#include "hub/range_fetch.h"
#include "hub/remote_file.h"

namespace zinc {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr int kMaxIdleLooks = 4;  // times in a row that the server is asked anew without a chunk gained in between
constexpr int kMaxBegins = 4;     // versions of the file, each begun at its first byte
constexpr int kMaxRepairs = 3;
constexpr std::string_view kReplaced =
    "it was replaced there. To take it as it is now, name it by its source: zinc pull hf:ORG/REPO:FILE";

class Download {
 public:
  Download(const DownloadRequest& request, const DownloadLimits& limits, const DownloadHooks& hooks)
      : request_(request), limits_(limits), hooks_(hooks) {}

  Result<Downloaded> run();

 private:
  Result<RemoteFile> find_remote();
  Status pause(int64_t pause_ms);
  Status check_remote(RemoteFile& remote) const;
  Result<PartFile> open_part(const RemoteFile& remote);
  Result<FetchEnd> fetch(const RemoteFile& remote, PartFile& part, FetchGoal goal);
  Result<FetchEnd> verify(const RemoteFile& remote, PartFile& part);
  Result<FetchEnd> repair(const RemoteFile& remote, PartFile& part, const std::string& found);
  ReadProgress checking(uint64_t n_bytes) const;
  Error keeps_changing() const;

  const DownloadRequest& request_;
  const DownloadLimits& limits_;
  const DownloadHooks& hooks_;
  Downloaded result_;
  JournalHead version_;  // of the file, as the server last told it
  int n_begins_ = 0, n_repairs_ = 0;
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
                  shown_url(request_.url), probe.again->reason, n_failures);
    }
    if (n_failures == 1) hooks_.say(fmt::format("{}: {}; trying again", shown_url(request_.url), probe.again->reason));
    int64_t pause_ms = int64_t{limits_.first_pause_ms} << std::min(n_failures - 1, 4);
    if (const auto asked_s = retry_after_s(probe.again->retry_after, std::time(nullptr));
        asked_s && !probe.again->retry_after.empty()) {
      if (*asked_s > limits_.max_pause_s) {
        return fail(ErrorCode::io, "{}: the server is busy and asks to come back in {} s; try later",
                    shown_url(request_.url), *asked_s);
      }
      pause_ms = std::max(pause_ms, *asked_s * 1000);
    }
    if (Status paused = pause(pause_ms); !paused.ok()) return paused.error();
  }
}

// Whether this is the file that was asked for, as far as the server's words go. Where the hash was known before, it
// alone is what tells versions apart from now on: two mirrors of one file state validators of their own.
Status Download::check_remote(RemoteFile& remote) const {
  if (!request_.sha256.empty() && !remote.sha256.empty() && request_.sha256 != remote.sha256) {
    return fail(ErrorCode::invalid_input,
                "{}: the server's file is another one than expected: its SHA-256 is {}, expected {}; {}",
                shown_url(request_.url), remote.sha256, request_.sha256, kReplaced);
  }
  if (remote.n_bytes == 0) remote.n_bytes = request_.n_bytes;
  if (remote.n_bytes == 0) {
    return fail(ErrorCode::invalid_input, "{}: the server does not say how long the file is, so it cannot be checked",
                shown_url(request_.url));
  }
  if (request_.n_bytes != 0 && request_.n_bytes != remote.n_bytes) {
    return fail(ErrorCode::invalid_input, "{}: the server's file has {} bytes, expected {}; {}",
                shown_url(request_.url), remote.n_bytes, request_.n_bytes, kReplaced);
  }
  if (!request_.sha256.empty()) {
    remote.sha256 = request_.sha256;
    remote.etag.clear();
    remote.last_modified.clear();
  }
  return ok_status();
}

ReadProgress Download::checking(uint64_t n_bytes) const {
  return [this, n_bytes](uint64_t n_done) {
    hooks_.progress({DownloadPhase::checking, n_bytes, n_done});
    return !hooks_.cancelled();
  };
}

Error Download::keeps_changing() const {
  return fail(ErrorCode::io, "{}: the file on the server keeps changing while it is fetched; try again later",
              shown_url(request_.url));
}

Result<PartFile> Download::open_part(const RemoteFile& remote) {
  const JournalHead version{remote.n_bytes, limits_.chunk_bytes, remote.identity()};
  // Without anything that tells versions apart, bytes of two of them could be mixed.
  if (version.identity.empty()) PartFile::remove(request_.target);
  if (version.identity.empty() || version != version_) ++n_begins_;
  if (n_begins_ > kMaxBegins) return keeps_changing();
  version_ = version;
  const uint64_t n_there = std::min(remote.n_bytes, PartFile::bytes_on_disk(request_.target));
  ZINC_TRY(space, check_disk_space(request_.target.parent_path(), remote.n_bytes - n_there));
  ZINC_TRY(part, PartFile::open(request_.target, version, checking(remote.n_bytes)));
  if (part.n_discarded_bytes() > 0) {
    hooks_.say(fmt::format("the {} MB that are here are of another version of the file; beginning anew",
                           part.n_discarded_bytes() / 1'000'000));
  }
  if (Status reserved = part.reserve(); !reserved.ok()) return reserved.error();
  return std::move(part);
}

Result<FetchEnd> Download::fetch(const RemoteFile& remote, PartFile& part, FetchGoal goal) {
  RangeFetch fetch(request_, limits_, hooks_, remote, part);
  Result<FetchEnd> end = fetch.run(goal);
  result_.n_fetched += fetch.n_fetched();
  if (!end.ok() || end.value() != FetchEnd::done || goal != FetchGoal::all_chunks_again) return end;
  if (fetch.n_replaced() > 0) {
    hooks_.say(fmt::format("{} of {} pieces had been damaged on the way and were replaced", fetch.n_replaced(),
                           part.n_chunks()));
    return end;
  }
  PartFile::remove(request_.target);
  return fail(ErrorCode::invalid_input,
              "{}: the server's bytes, fetched twice, do not have the expected SHA-256 {}; nothing was kept",
              shown_url(request_.url), remote.sha256);
}

// The whole is wrong: find out where. What the disk damaged is known by the journal; what the network damaged only by
// fetching it again.
Result<FetchEnd> Download::repair(const RemoteFile& remote, PartFile& part, const std::string& found) {
  if (++n_repairs_ > kMaxRepairs) {
    PartFile::remove(request_.target);
    return fail(ErrorCode::invalid_input, "{}: the file has SHA-256 {}, expected {}; nothing was kept, try again",
                shown_url(request_.url), found, remote.sha256);
  }
  ZINC_TRY(n_damaged, part.drop_damaged(checking(part.head().n_bytes)));
  if (n_damaged > 0) {
    hooks_.say(
        fmt::format("{} of {} pieces were damaged on the disk; fetching them again", n_damaged, part.n_chunks()));
    return fetch(remote, part, FetchGoal::missing_chunks);
  }
  hooks_.say("the file arrived with a wrong hash; looking for the damaged pieces");
  return fetch(remote, part, FetchGoal::all_chunks_again);
}

Result<FetchEnd> Download::verify(const RemoteFile& remote, PartFile& part) {
  for (;;) {
    ZINC_TRY(found, part.sha256(checking(part.head().n_bytes)));
    if (remote.sha256.empty() || found == remote.sha256) {
      result_.n_bytes = part.head().n_bytes;
      result_.sha256 = found;
      result_.was_stated = !remote.sha256.empty();
      if (Status finished = part.finish(); !finished.ok()) return finished.error();
      return FetchEnd::done;
    }
    ZINC_TRY(repaired, repair(remote, part, found));
    if (repaired == FetchEnd::look_again) return repaired;
  }
}

Result<Downloaded> Download::run() {
  int n_idle_looks = 0;
  for (;;) {
    ZINC_TRY(remote, find_remote());
    if (Status checked = check_remote(remote); !checked.ok()) return checked.error();
    if (!remote.sha256.empty()) {
      ZINC_TRY(is_there, has_sha256(request_.target, remote.n_bytes, remote.sha256, hooks_));
      if (is_there) return Downloaded{remote.n_bytes, remote.sha256, true, result_.n_fetched};
    }
    ZINC_TRY(part, open_part(remote));
    const uint64_t n_before = part.n_whole_bytes();
    ZINC_TRY(fetched, fetch(remote, part, FetchGoal::missing_chunks));
    const bool gained = part.n_whole_bytes() > n_before;
    FetchEnd end = fetched;
    if (end == FetchEnd::done) {
      ZINC_TRY(verified, verify(remote, part));
      end = verified;
    }
    if (end == FetchEnd::done) return result_;
    n_idle_looks = gained ? 0 : n_idle_looks + 1;
    if (n_idle_looks > kMaxIdleLooks) return keeps_changing();
    if (Status paused = pause(limits_.first_pause_ms); !paused.ok()) return paused.error();
  }
}

}  // namespace

Result<Downloaded> download_file(const DownloadRequest& request, const DownloadLimits& limits,
                                 const DownloadHooks& hooks) {
  return Download(request, limits, hooks).run();
}

}  // namespace zinc
