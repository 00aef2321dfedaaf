// Metadata of a file on a server: size, support of range requests, and version identity (hash or validators).
#pragma once

#include "hub/transfer.h"

namespace zinc {

struct RemoteFile {
  std::string url;       // after redirects
  uint64_t n_bytes = 0;  // 0: unknown
  bool supports_ranges = false;
  std::string sha256;  // of the whole file, if stated; lower case
  std::string etag;    // strong ones only
  std::string last_modified;

  // Equal for equal bytes; empty if the server states neither a hash nor a validator.
  std::string identity() const;
  // For If-Range; empty: none.
  const std::string& validator() const { return etag.empty() ? last_modified : etag; }
  bool is_same_version(const ResponseHead& head) const;  // a later response does not contradict this version
};

// A failure that may pass: worth another attempt.
struct TransientError {
  std::string reason;
  std::string retry_after;  // the header value
};
struct ProbeResult {
  std::optional<RemoteFile> file;
  std::optional<TransientError> transient;  // absent if `file` is set
};

// One request. An Error is permanent: a retry would not help.
Result<ProbeResult> probe_file(const TransferRequest& request, const TransferLimits& limits,
                               const std::function<bool()>& cancelled);

// Seconds to wait from a Retry-After number or date; nullopt if it is neither.
std::optional<int64_t> retry_after_s(std::string_view value, int64_t now_s);

}  // namespace zinc
