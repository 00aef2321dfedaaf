#include "hub/range_fetch.h"

#include <algorithm>
#include <ctime>

namespace zinc {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kWaitMs = 100;
constexpr int kMaxPauseMs = 8'000;
constexpr uint64_t kProgressBytes = 64 << 10;  // a try that brought so much was no failure in a row

}  // namespace

struct RangeFetch::Connection {
  std::unique_ptr<Transfer> transfer;
  std::optional<Run> run;
  uint64_t began_at = 0;  // run->position when the request was sent
  int n_failures = 0;
  Clock::time_point not_before = {};
  bool given_up = false;
  // Of the current request:
  bool head_checked = false;
  std::optional<Error> fatal;
  std::optional<TryAgain> again;
};

RangeFetch::RangeFetch(const DownloadRequest& request, const DownloadLimits& limits, const DownloadHooks& hooks,
                       const RemoteFile& remote, PartFile& part)
    : request_(request), limits_(limits), hooks_(hooks), remote_(remote), part_(part) {}

RangeFetch::~RangeFetch() {
  for (const auto& connection : connections_) {
    if (connection->transfer) transfers_.remove(*connection->transfer);
  }
}

void RangeFetch::plan_runs(FetchGoal goal) {
  goal_ = goal;
  waiting_.clear();
  const bool takes_all = goal == FetchGoal::all_chunks_again || !remote_.takes_ranges;
  for (uint64_t c = 0; c < part_.n_chunks(); ++c) {
    if (!takes_all && part_.digest(c)) continue;
    if (!waiting_.empty() && waiting_.back().end_chunk == c) {
      waiting_.back().end_chunk = c + 1;
    } else {
      waiting_.push_back({c, c + 1, part_.chunk_begin(c)});
    }
  }
  const bool is_whole = part_.n_whole_bytes() == part_.head().n_bytes;
  if (goal == FetchGoal::missing_chunks && is_whole) waiting_.clear();
  const size_t n_wanted = remote_.takes_ranges ? static_cast<size_t>(limits_.n_connections) : 1;
  connections_.clear();
  for (size_t i = 0; i < n_wanted; ++i) connections_.push_back(std::make_unique<Connection>());
}

// Long enough to make few requests, short enough that all connections end at about the same time.
uint64_t RangeFetch::run_length() const {
  if (!remote_.takes_ranges) return part_.n_chunks();
  uint64_t n_waiting = 0;
  for (const Run& run : waiting_) n_waiting += run.end_chunk - run.chunk;
  const uint64_t fair = n_waiting / (2 * connections_.size());
  return std::clamp<uint64_t>(fair, 1, static_cast<uint64_t>(limits_.max_chunks_per_request));
}

void RangeFetch::start_idle() {
  const Clock::time_point now = Clock::now();
  for (const auto& connection : connections_) {
    Connection& c = *connection;
    if (c.transfer || c.given_up || now < c.not_before) continue;
    if (!c.run && !waiting_.empty()) {
      const uint64_t n_most = run_length();
      c.run = std::move(waiting_.front());
      waiting_.pop_front();
      const uint64_t end = std::min(c.run->end_chunk, c.run->chunk + n_most);
      if (end < c.run->end_chunk) waiting_.push_front(Run{end, c.run->end_chunk, part_.chunk_begin(end)});
      c.run->end_chunk = end;
    }
    if (!c.run) continue;
    TransferRequest request{remote_.url, is_same_origin(remote_.url, request_.url) ? request_.bearer_token : "", {}};
    request.headers.push_back("Accept-Encoding: identity");
    if (remote_.takes_ranges) {
      request.headers.push_back(
          fmt::format("Range: bytes={}-{}", c.run->position, part_.chunk_end(c.run->end_chunk - 1) - 1));
      if (!remote_.validator().empty()) request.headers.push_back("If-Range: " + remote_.validator());
    }
    c.began_at = c.run->position;
    c.head_checked = false;
    c.fatal.reset();
    c.again.reset();
    c.transfer = std::make_unique<Transfer>(
        request, limits_.transfer,
        [this, &c](const ReplyHead& head, std::span<const std::byte> bytes) { return take_body(c, head, bytes); });
    transfers_.add(*c.transfer);
  }
}

// Whether the reply is a piece of our file. What it means if it is not is left in the connection or in look_again_.
Status RangeFetch::check_reply(Connection& c, const ReplyHead& head) {
  c.head_checked = true;
  const bool was_redirected = remote_.url != request_.url;
  const bool has_expired =
      was_redirected && (head.status == 401 || head.status == 403 || head.status == 404 || head.status == 410);
  const bool is_other_kind = head.status == (remote_.takes_ranges ? 200 : 206);
  if (has_expired || is_other_kind || head.status == 412 || head.status == 416) {
    look_again_ = true;
    return ok_status();
  }
  if (head.status != 200 && head.status != 206) {
    const Refusal refusal = explain_status(request_.url, head.status);
    if (refusal.is_final) return fail(refusal.code, "{}", refusal.message);
    c.again = TryAgain{refusal.message, head.retry_after};
    return ok_status();
  }
  if (!remote_.is_still(head)) {
    look_again_ = true;
    return ok_status();
  }
  if (!head.content_encoding.empty() && head.content_encoding != "identity") {
    c.again = TryAgain{"the server sent a piece of the file compressed", ""};
    return ok_status();
  }
  if (!remote_.takes_ranges) {
    look_again_ = head.content_length && *head.content_length != part_.head().n_bytes;
    return ok_status();
  }
  const std::optional<ContentRange>& range = head.content_range;
  if (!range) {
    c.again = TryAgain{"the server sent a piece of the file without saying which", ""};
  } else if (range->total && *range->total != part_.head().n_bytes) {
    look_again_ = true;
  } else if (range->first != c.run->position || range->end > part_.chunk_end(c.run->end_chunk - 1)) {
    c.again = TryAgain{
        fmt::format("the server sent bytes {} to {} where {} was to begin", range->first, range->end, c.run->position),
        ""};
  }
  return ok_status();
}

bool RangeFetch::take_body(Connection& c, const ReplyHead& head, std::span<const std::byte> bytes) {
  if (!c.head_checked) {
    if (Status checked = check_reply(c, head); !checked.ok()) c.fatal = checked.error();
  }
  if (c.fatal || c.again || look_again_) return false;
  n_fetched_ += bytes.size();
  const uint64_t n_wanted = part_.chunk_end(c.run->end_chunk - 1) - c.run->position;
  const bool is_too_long = bytes.size() > n_wanted;
  if (is_too_long) bytes = bytes.first(static_cast<size_t>(n_wanted));
  if (Status taken = take_bytes(*c.run, bytes); !taken.ok()) c.fatal = taken.error();
  return !c.fatal && !is_too_long;
}

Status RangeFetch::take_bytes(Run& run, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const uint64_t n_to_end = part_.chunk_end(run.chunk) - run.position;
    const std::span<const std::byte> piece =
        bytes.first(static_cast<size_t>(std::min<uint64_t>(n_to_end, bytes.size())));
    if (goal_ == FetchGoal::all_chunks_again) {
      run.kept.insert(run.kept.end(), piece.begin(), piece.end());
    } else if (Status written = part_.write(run.position, piece); !written.ok()) {
      return written;
    }
    run.hash.update(piece);
    run.position += piece.size();
    bytes = bytes.subspan(piece.size());
    if (run.position < part_.chunk_end(run.chunk)) continue;
    if (Status ended = end_chunk(run); !ended.ok()) return ended;
  }
  return ok_status();
}

Status RangeFetch::end_chunk(Run& run) {
  const Sha256::Digest digest = run.hash.finish();
  const bool is_known = part_.digest(run.chunk) == digest;
  n_compared_ += part_.chunk_end(run.chunk) - part_.chunk_begin(run.chunk);
  if (goal_ == FetchGoal::all_chunks_again && !is_known) {
    ++n_replaced_;
    // First out of the journal: killed in between, the chunk counts as missing.
    if (Status dropped = part_.set_chunk(run.chunk, std::nullopt); !dropped.ok()) return dropped;
    if (Status written = part_.write(part_.chunk_begin(run.chunk), run.kept); !written.ok()) return written;
  }
  if (!is_known) {
    if (Status noted = part_.set_chunk(run.chunk, digest); !noted.ok()) return noted;
  }
  run.hash = Sha256();
  run.kept.clear();
  ++run.chunk;
  return ok_status();
}

Status RangeFetch::finish(Connection& c, const FinishedTransfer& finished) {
  if (finished.end == TransferEnd::complete && !c.head_checked) {
    if (Status checked = check_reply(c, c.transfer->head()); !checked.ok()) c.fatal = checked.error();
  }
  c.transfer.reset();
  if (c.fatal) return *c.fatal;
  if (look_again_) return ok_status();
  if (c.again) return retry_later(c, c.again->reason, c.again->retry_after);
  if (c.run->chunk == c.run->end_chunk) {
    c.run.reset();
    c.n_failures = 0;
    return ok_status();
  }
  if (finished.end == TransferEnd::impossible) {
    return fail(ErrorCode::io, "{}: {}", shown_url(request_.url), finished.reason);
  }
  return retry_later(c, finished.end == TransferEnd::complete ? "the reply ended early" : finished.reason, "");
}

Status RangeFetch::retry_later(Connection& c, const std::string& reason, const std::string& retry_after) {
  const bool made_progress =
      remote_.takes_ranges && c.run->position - c.began_at >= std::min(kProgressBytes, limits_.chunk_bytes);
  c.n_failures = made_progress ? 1 : c.n_failures + 1;
  if (!remote_.takes_ranges) c.run = Run{0, part_.n_chunks(), 0};
  if (c.n_failures >= limits_.n_failures) {
    c.given_up = true;
    waiting_.push_front(std::move(*c.run));
    c.run.reset();
    const bool is_last = std::ranges::all_of(connections_, [](const auto& other) { return other->given_up; });
    if (!is_last) return ok_status();
    return fail(ErrorCode::io,
                "{}: {}, {} times in a row; {} of {} bytes are here and stay, so the same command goes on from there",
                shown_url(request_.url), reason, c.n_failures, part_.n_whole_bytes(), part_.head().n_bytes);
  }
  int64_t pause_ms = std::min<int64_t>(kMaxPauseMs, int64_t{limits_.first_pause_ms} << std::min(c.n_failures - 1, 10));
  if (const auto asked_s = retry_after_s(retry_after, std::time(nullptr)); asked_s && !retry_after.empty()) {
    if (*asked_s > limits_.max_pause_s) {
      return fail(ErrorCode::io, "{}: the server is busy and asks to come back in {} s; what arrived stays, try later",
                  shown_url(request_.url), *asked_s);
    }
    pause_ms = std::max(pause_ms, *asked_s * 1000);
  }
  c.not_before = Clock::now() + std::chrono::milliseconds(pause_ms);
  return ok_status();
}

void RangeFetch::report() const {
  DownloadProgress progress{DownloadPhase::fetching, part_.head().n_bytes, part_.n_whole_bytes()};
  if (goal_ == FetchGoal::all_chunks_again) progress.n_done = n_compared_;
  for (const auto& connection : connections_) {
    const bool has_part = connection->run && connection->run->chunk < connection->run->end_chunk;
    if (has_part && (goal_ == FetchGoal::all_chunks_again || !part_.digest(connection->run->chunk))) {
      progress.n_done += connection->run->position - part_.chunk_begin(connection->run->chunk);
    }
  }
  progress.n_done = std::min(progress.n_done, progress.n_bytes);
  hooks_.progress(progress);
}

Result<FetchEnd> RangeFetch::run(FetchGoal goal) {
  plan_runs(goal);
  const auto has_work = [](const auto& connection) { return connection->run.has_value(); };
  while (!waiting_.empty() || std::ranges::any_of(connections_, has_work)) {
    if (hooks_.cancelled()) return fail(ErrorCode::cancelled, "interrupted; what arrived is kept");
    start_idle();
    for (const FinishedTransfer& finished : transfers_.run(kWaitMs)) {
      const auto owner = std::ranges::find_if(
          connections_, [&](const auto& connection) { return connection->transfer.get() == finished.transfer; });
      if (Status ended = finish(**owner, finished); !ended.ok()) return ended.error();
    }
    if (look_again_) return FetchEnd::look_again;
    report();
  }
  return FetchEnd::done;
}

}  // namespace zinc
