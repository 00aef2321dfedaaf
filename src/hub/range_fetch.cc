#include "hub/range_fetch.h"

#include <algorithm>
#include <ctime>

namespace zinc {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kWaitMs = 100;
constexpr int kMaxPauseMs = 8'000;
constexpr uint64_t kProgressBytes = 64 << 10;  // an attempt that received this much resets the failure count

}  // namespace

struct RangeFetch::Connection {
  std::unique_ptr<Transfer> transfer;
  std::optional<ChunkRange> chunks;
  uint64_t began_at = 0;  // chunks->position when the request was sent
  int n_failures = 0;
  Clock::time_point not_before = {};
  bool given_up = false;
  // Of the current request:
  bool head_checked = false;
  std::optional<Error> fatal;
  std::optional<TransientError> transient;
};

RangeFetch::RangeFetch(const DownloadRequest& request, const DownloadLimits& limits, const DownloadHooks& hooks,
                       const RemoteFile& remote, PartialDownload& part)
    : request_(request), limits_(limits), hooks_(hooks), remote_(remote), part_(part) {}

RangeFetch::~RangeFetch() {
  for (const auto& connection : connections_) {
    if (connection->transfer) transfers_.remove(*connection->transfer);
  }
}

void RangeFetch::plan_ranges(FetchGoal goal) {
  goal_ = goal;
  waiting_.clear();
  const bool all_chunks = goal == FetchGoal::refetch_all_chunks || !remote_.supports_ranges;
  for (uint64_t c = 0; c < part_.n_chunks(); ++c) {
    if (!all_chunks && part_.digest(c)) continue;
    if (!waiting_.empty() && waiting_.back().end_chunk == c) {
      waiting_.back().end_chunk = c + 1;
    } else {
      waiting_.push_back({c, c + 1, part_.chunk_begin(c)});
    }
  }
  const bool is_complete = part_.n_complete_bytes() == part_.head().n_bytes;
  if (goal == FetchGoal::missing_chunks && is_complete) waiting_.clear();
  const size_t n_wanted = remote_.supports_ranges ? static_cast<size_t>(limits_.n_connections) : 1;
  connections_.clear();
  for (size_t i = 0; i < n_wanted; ++i) connections_.push_back(std::make_unique<Connection>());
}

// Chunks per request: large enough for few requests, small enough that all connections end at about the same time.
uint64_t RangeFetch::range_chunks() const {
  if (!remote_.supports_ranges) return part_.n_chunks();
  uint64_t n_waiting = 0;
  for (const ChunkRange& chunks : waiting_) n_waiting += chunks.end_chunk - chunks.chunk;
  const uint64_t fair = n_waiting / (2 * connections_.size());
  return std::clamp<uint64_t>(fair, 1, static_cast<uint64_t>(limits_.max_chunks_per_request));
}

void RangeFetch::start_idle() {
  const Clock::time_point now = Clock::now();
  for (const auto& connection : connections_) {
    Connection& c = *connection;
    if (c.transfer || c.given_up || now < c.not_before) continue;
    if (!c.chunks && !waiting_.empty()) {
      const uint64_t max_chunks = range_chunks();
      c.chunks = std::move(waiting_.front());
      waiting_.pop_front();
      const uint64_t end = std::min(c.chunks->end_chunk, c.chunks->chunk + max_chunks);
      if (end < c.chunks->end_chunk) waiting_.push_front(ChunkRange{end, c.chunks->end_chunk, part_.chunk_begin(end)});
      c.chunks->end_chunk = end;
    }
    if (!c.chunks) continue;
    TransferRequest request{remote_.url, is_same_origin(remote_.url, request_.url) ? request_.bearer_token : "", {}};
    request.headers.push_back("Accept-Encoding: identity");
    if (remote_.supports_ranges) {
      request.headers.push_back(
          fmt::format("Range: bytes={}-{}", c.chunks->position, part_.chunk_end(c.chunks->end_chunk - 1) - 1));
      if (!remote_.validator().empty()) request.headers.push_back("If-Range: " + remote_.validator());
    }
    c.began_at = c.chunks->position;
    c.head_checked = false;
    c.fatal.reset();
    c.transient.reset();
    c.transfer = std::make_unique<Transfer>(
        request, limits_.transfer,
        [this, &c](const ResponseHead& head, std::span<const std::byte> bytes) { return on_body(c, head, bytes); });
    transfers_.add(*c.transfer);
  }
}

// Checks that the response is the requested range of our file. If not, sets c.transient or probe_again_.
Status RangeFetch::check_reply(Connection& c, const ResponseHead& head) {
  c.head_checked = true;
  const bool was_redirected = remote_.url != request_.url;
  const bool has_expired =
      was_redirected && (head.status == 401 || head.status == 403 || head.status == 404 || head.status == 410);
  const bool is_unexpected_status = head.status == (remote_.supports_ranges ? 200 : 206);
  if (has_expired || is_unexpected_status || head.status == 412 || head.status == 416) {
    probe_again_ = true;
    return ok_status();
  }
  if (head.status != 200 && head.status != 206) {
    const StatusError error = explain_status(request_.url, head.status);
    if (error.is_final) return fail(error.code, "{}", error.message);
    c.transient = TransientError{error.message, head.retry_after};
    return ok_status();
  }
  if (!remote_.is_same_version(head)) {
    probe_again_ = true;
    return ok_status();
  }
  if (!head.content_encoding.empty() && head.content_encoding != "identity") {
    c.transient = TransientError{"the server compressed a range of the file", ""};
    return ok_status();
  }
  if (!remote_.supports_ranges) {
    probe_again_ = head.content_length && *head.content_length != part_.head().n_bytes;
    return ok_status();
  }
  const std::optional<ContentRange>& range = head.content_range;
  if (!range) {
    c.transient = TransientError{"the server sent a range without Content-Range", ""};
  } else if (range->total && *range->total != part_.head().n_bytes) {
    probe_again_ = true;
  } else if (range->first != c.chunks->position || range->end > part_.chunk_end(c.chunks->end_chunk - 1)) {
    c.transient = TransientError{fmt::format("the server sent bytes {} to {}, expected them to start at {}",
                                             range->first, range->end, c.chunks->position),
                                 ""};
  }
  return ok_status();
}

bool RangeFetch::on_body(Connection& c, const ResponseHead& head, std::span<const std::byte> bytes) {
  if (!c.head_checked) {
    if (Status checked = check_reply(c, head); !checked.ok()) c.fatal = checked.error();
  }
  if (c.fatal || c.transient || probe_again_) return false;
  n_fetched_ += bytes.size();
  const uint64_t n_expected = part_.chunk_end(c.chunks->end_chunk - 1) - c.chunks->position;
  const bool is_too_long = bytes.size() > n_expected;
  if (is_too_long) bytes = bytes.first(static_cast<size_t>(n_expected));
  if (Status appended = append_bytes(*c.chunks, bytes); !appended.ok()) c.fatal = appended.error();
  return !c.fatal && !is_too_long;
}

Status RangeFetch::append_bytes(ChunkRange& chunks, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const uint64_t n_to_end = part_.chunk_end(chunks.chunk) - chunks.position;
    const std::span<const std::byte> piece =
        bytes.first(static_cast<size_t>(std::min<uint64_t>(n_to_end, bytes.size())));
    if (goal_ == FetchGoal::refetch_all_chunks) {
      chunks.kept.insert(chunks.kept.end(), piece.begin(), piece.end());
    } else if (Status written = part_.write(chunks.position, piece); !written.ok()) {
      return written;
    }
    chunks.hash.update(piece);
    chunks.position += piece.size();
    bytes = bytes.subspan(piece.size());
    if (chunks.position < part_.chunk_end(chunks.chunk)) continue;
    if (Status ended = end_chunk(chunks); !ended.ok()) return ended;
  }
  return ok_status();
}

Status RangeFetch::end_chunk(ChunkRange& chunks) {
  const Sha256::Digest digest = chunks.hash.finish();
  const bool is_known = part_.digest(chunks.chunk) == digest;
  n_compared_ += part_.chunk_end(chunks.chunk) - part_.chunk_begin(chunks.chunk);
  if (goal_ == FetchGoal::refetch_all_chunks && !is_known) {
    ++n_replaced_;
    // Removed from the journal first: if the process is killed in between, the chunk counts as missing.
    if (Status dropped = part_.set_chunk(chunks.chunk, std::nullopt); !dropped.ok()) return dropped;
    if (Status written = part_.write(part_.chunk_begin(chunks.chunk), chunks.kept); !written.ok()) return written;
  }
  if (!is_known) {
    if (Status noted = part_.set_chunk(chunks.chunk, digest); !noted.ok()) return noted;
  }
  chunks.hash = Sha256();
  chunks.kept.clear();
  ++chunks.chunk;
  return ok_status();
}

Status RangeFetch::finish(Connection& c, const FinishedTransfer& finished) {
  if (finished.end == TransferEnd::complete && !c.head_checked) {
    if (Status checked = check_reply(c, c.transfer->head()); !checked.ok()) c.fatal = checked.error();
  }
  c.transfer.reset();
  if (c.fatal) return *c.fatal;
  if (probe_again_) return ok_status();
  if (c.transient) return retry_later(c, c.transient->reason, c.transient->retry_after);
  if (c.chunks->chunk == c.chunks->end_chunk) {
    c.chunks.reset();
    c.n_failures = 0;
    return ok_status();
  }
  if (finished.end == TransferEnd::permanent_failure) {
    return fail(ErrorCode::io, "{}: {}", display_url(request_.url), finished.reason);
  }
  return retry_later(c, finished.end == TransferEnd::complete ? "the response ended early" : finished.reason, "");
}

Status RangeFetch::retry_later(Connection& c, const std::string& reason, const std::string& retry_after) {
  const bool made_progress =
      remote_.supports_ranges && c.chunks->position - c.began_at >= std::min(kProgressBytes, limits_.chunk_bytes);
  c.n_failures = made_progress ? 1 : c.n_failures + 1;
  if (!remote_.supports_ranges) c.chunks = ChunkRange{0, part_.n_chunks(), 0};
  if (c.n_failures >= limits_.n_failures) {
    c.given_up = true;
    waiting_.push_front(std::move(*c.chunks));
    c.chunks.reset();
    const bool is_last = std::ranges::all_of(connections_, [](const auto& other) { return other->given_up; });
    if (!is_last) return ok_status();
    return fail(ErrorCode::io, "{}: {}, {} times in a row; {} of {} bytes are kept, repeat the command to resume",
                display_url(request_.url), reason, c.n_failures, part_.n_complete_bytes(), part_.head().n_bytes);
  }
  int64_t pause_ms = std::min<int64_t>(kMaxPauseMs, int64_t{limits_.first_pause_ms} << std::min(c.n_failures - 1, 10));
  if (const auto asked_s = retry_after_s(retry_after, std::time(nullptr)); asked_s && !retry_after.empty()) {
    if (*asked_s > limits_.max_pause_s) {
      return fail(ErrorCode::io,
                  "{}: the server is busy and asks to retry in {} s; downloaded data is kept, try again later",
                  display_url(request_.url), *asked_s);
    }
    pause_ms = std::max(pause_ms, *asked_s * 1000);
  }
  c.not_before = Clock::now() + std::chrono::milliseconds(pause_ms);
  return ok_status();
}

void RangeFetch::report() const {
  DownloadProgress progress{DownloadPhase::downloading, part_.head().n_bytes, part_.n_complete_bytes()};
  if (goal_ == FetchGoal::refetch_all_chunks) progress.n_done = n_compared_;
  for (const auto& connection : connections_) {
    const bool has_part = connection->chunks && connection->chunks->chunk < connection->chunks->end_chunk;
    if (has_part && (goal_ == FetchGoal::refetch_all_chunks || !part_.digest(connection->chunks->chunk))) {
      progress.n_done += connection->chunks->position - part_.chunk_begin(connection->chunks->chunk);
    }
  }
  progress.n_done = std::min(progress.n_done, progress.n_bytes);
  hooks_.progress(progress);
}

Result<FetchOutcome> RangeFetch::run(FetchGoal goal) {
  plan_ranges(goal);
  const auto has_work = [](const auto& connection) { return connection->chunks.has_value(); };
  while (!waiting_.empty() || std::ranges::any_of(connections_, has_work)) {
    if (hooks_.cancelled()) return fail(ErrorCode::cancelled, "interrupted; downloaded data is kept");
    start_idle();
    for (const FinishedTransfer& finished : transfers_.run(kWaitMs)) {
      const auto owner = std::ranges::find_if(
          connections_, [&](const auto& connection) { return connection->transfer.get() == finished.transfer; });
      if (Status ended = finish(**owner, finished); !ended.ok()) return ended.error();
    }
    if (probe_again_) return FetchOutcome::probe_again;
    report();
  }
  return FetchOutcome::done;
}

}  // namespace zinc
