#include "hub/remote_file.h"

#include <algorithm>
#include <charconv>

#include "base/sanitize_for_terminal.h"
#include "hub/journal.h"

namespace zinc {
namespace {

std::string without_quotes(std::string_view text) {
  if (text.size() >= 2 && text.front() == '"' && text.back() == '"') text = text.substr(1, text.size() - 2);
  return std::string(text);
}

// A weak ETag means that two versions are equivalent, not that their bytes are equal.
std::string strong_etag(const ResponseHead& head) {
  return head.etag.starts_with('"') && head.etag.size() > 2 ? head.etag : std::string();
}

std::string stated_sha256(const ResponseHead& head) {
  const auto digest = parse_sha256(without_quotes(head.linked_etag));
  return digest ? to_hex(*digest) : std::string();
}

Error compressed(const std::string& url, const std::string& encoding) {
  return fail(
      ErrorCode::invalid_input,
      "{}: the server sends the file compressed ({}) although identity encoding was requested, so ranges cannot be "
      "downloaded. Try another mirror",
      display_url(url), sanitize_for_terminal(encoding));
}

}  // namespace

std::string RemoteFile::identity() const {
  if (!sha256.empty()) return "sha256 " + sha256;
  if (!etag.empty()) return "etag " + etag;
  return last_modified.empty() ? std::string() : "modified " + last_modified;
}

bool RemoteFile::is_same_version(const ResponseHead& head) const {
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
  Transfer transfer(first_byte, limits, [&](const ResponseHead& head, std::span<const std::byte> bytes) {
    n_body_bytes += bytes.size();
    return head.status == 206 && n_body_bytes <= 1;  // stop if the server sends more: only the head is needed
  });
  const FinishedTransfer done = run_transfer(transfer, cancelled);
  if (cancelled()) return fail(ErrorCode::cancelled, "interrupted");
  const ResponseHead& head = transfer.head();
  if (done.end == TransferEnd::permanent_failure) {
    return fail(ErrorCode::io, "{}: {}", display_url(request.url), done.reason);
  }
  if (done.end == TransferEnd::transient_failure && n_body_bytes == 0)
    return ProbeResult{{}, TransientError{done.reason, ""}};
  if (head.status == 416 && head.content_range && head.content_range->total == 0) {
    return fail(ErrorCode::invalid_input, "{}: the file is empty", display_url(request.url));
  }
  if (head.status != 200 && head.status != 206) {
    const StatusError error = explain_status(request.url, head.status);
    if (error.is_final) return fail(error.code, "{}", error.message);
    return ProbeResult{{}, TransientError{error.message, head.retry_after}};
  }
  if (!head.content_encoding.empty() && head.content_encoding != "identity") {
    return compressed(request.url, head.content_encoding);
  }
  RemoteFile file;
  file.url = transfer.final_url();
  file.supports_ranges = head.status == 206;
  file.sha256 = stated_sha256(head);
  file.etag = strong_etag(head);
  file.last_modified = head.last_modified;
  if (head.status == 206) {
    const std::optional<ContentRange>& range = head.content_range;
    if (!range || range->first != 0 || range->end != 1) {
      return ProbeResult{{}, TransientError{"the server returned a different range than requested", ""}};
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
