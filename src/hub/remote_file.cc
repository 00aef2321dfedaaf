#include "hub/remote_file.h"

#include <algorithm>
#include <charconv>

#include "base/printable.h"
#include "hub/journal.h"

namespace zinc {
namespace {

std::string without_quotes(std::string_view text) {
  if (text.size() >= 2 && text.front() == '"' && text.back() == '"') text = text.substr(1, text.size() - 2);
  return std::string(text);
}

// A weak tag says that two versions mean the same, not that they are the same bytes.
std::string strong_etag(const ReplyHead& head) {
  return head.etag.starts_with('"') && head.etag.size() > 2 ? head.etag : std::string();
}

std::string stated_sha256(const ReplyHead& head) {
  const auto digest = parse_sha256(without_quotes(head.linked_etag));
  return digest ? to_hex(*digest) : std::string();
}

Error compressed(const std::string& url, const std::string& encoding) {
  return fail(
      ErrorCode::invalid_input,
      "{}: the server sends the file compressed ({}) though it was asked not to; it cannot be fetched in pieces "
      "that way. Try another mirror",
      shown_url(url), printable(encoding));
}

}  // namespace

std::string RemoteFile::identity() const {
  if (!sha256.empty()) return "sha256 " + sha256;
  if (!etag.empty()) return "etag " + etag;
  return last_modified.empty() ? std::string() : "modified " + last_modified;
}

bool RemoteFile::is_still(const ReplyHead& head) const {
  const std::string now_sha256 = stated_sha256(head), now_etag = strong_etag(head);
  if (!now_sha256.empty() && !sha256.empty() && now_sha256 != sha256) return false;
  if (!now_etag.empty() && !etag.empty() && now_etag != etag) return false;
  if (etag.empty() && !last_modified.empty() && !head.last_modified.empty() && head.last_modified != last_modified) {
    return false;
  }
  return true;
}

Result<ProbeResult> probe_file(const TransferRequest& request, const TransferLimits& limits,
                               const std::function<bool()>& cancelled) {
  TransferRequest first_byte = request;
  first_byte.headers.push_back("Range: bytes=0-0");
  first_byte.headers.push_back("Accept-Encoding: identity");
  size_t n_body_bytes = 0;
  Transfer transfer(first_byte, limits, [&](const ReplyHead& head, std::span<const std::byte> bytes) {
    n_body_bytes += bytes.size();
    return head.status == 206 && n_body_bytes <= 1;  // of more than was asked for only the head is wanted
  });
  const FinishedTransfer done = run_transfer(transfer, cancelled);
  if (cancelled()) return fail(ErrorCode::cancelled, "interrupted");
  const ReplyHead& head = transfer.head();
  if (done.end == TransferEnd::impossible) {
    return fail(ErrorCode::io, "{}: {}", shown_url(request.url), done.reason);
  }
  if (done.end == TransferEnd::broken && n_body_bytes == 0) return ProbeResult{{}, TryAgain{done.reason, ""}};
  if (head.status == 416 && head.content_range && head.content_range->total == 0) {
    return fail(ErrorCode::invalid_input, "{}: the file is empty", shown_url(request.url));
  }
  if (head.status != 200 && head.status != 206) {
    const Refusal refusal = explain_status(request.url, head.status);
    if (refusal.is_final) return fail(refusal.code, "{}", refusal.message);
    return ProbeResult{{}, TryAgain{refusal.message, head.retry_after}};
  }
  if (!head.content_encoding.empty() && head.content_encoding != "identity") {
    return compressed(request.url, head.content_encoding);
  }
  RemoteFile file;
  file.url = transfer.final_url();
  file.takes_ranges = head.status == 206;
  file.sha256 = stated_sha256(head);
  file.etag = strong_etag(head);
  file.last_modified = head.last_modified;
  if (head.status == 206) {
    const std::optional<ContentRange>& range = head.content_range;
    if (!range || range->first != 0 || range->end != 1) {
      return ProbeResult{{}, TryAgain{"the server answered with another range than the one asked for", ""}};
    }
    file.n_bytes = range->total.value_or(0);
  } else {
    file.n_bytes = head.content_length.value_or(0);
  }
  if (file.n_bytes == 0) file.n_bytes = head.linked_bytes.value_or(0);
  return ProbeResult{std::move(file), {}};
}

std::optional<int64_t> retry_after_s(std::string_view value, int64_t now_s) {
  int64_t seconds = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), seconds);
  if (error == std::errc() && end == value.data() + value.size()) return std::max<int64_t>(0, seconds);
  const time_t date = curl_getdate(std::string(value).c_str(), nullptr);
  if (date < 0) return std::nullopt;
  return std::max<int64_t>(0, static_cast<int64_t>(date) - now_s);
}

}  // namespace zinc
