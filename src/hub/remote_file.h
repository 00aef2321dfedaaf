// What a server says about a file before it is fetched: how long it is, whether it can be had in pieces, and what tells
// this version of it from others.
#pragma once

#include "hub/transfer.h"

namespace zinc {

struct RemoteFile {
  std::string url;       // after redirects: where the bytes are
  uint64_t n_bytes = 0;  // 0: the server does not say
  bool takes_ranges = false;
  std::string sha256;  // of the whole file, if the server states it; lower case
  std::string etag;    // strong ones only
  std::string last_modified;

  // The same for the same bytes; empty if the server says nothing that could tell versions apart.
  std::string identity() const;
  // For If-Range: what a piece must still be a piece of; empty if there is nothing.
  const std::string& validator() const { return etag.empty() ? last_modified : etag; }
  bool is_still(const ReplyHead& head) const;  // nothing in a later reply says that the file is another one now
};

// How a try to reach a file may end, beside success.
struct TryAgain {
  std::string reason;
  std::string retry_after;  // as the server said it
};
struct ProbeResult {
  std::optional<RemoteFile> file;
  std::optional<TryAgain> again;  // a fault that may pass; absent with `file`
};

// One request. An Error is final: another try changes nothing.
Result<ProbeResult> probe_file(const TransferRequest& request, const TransferLimits& limits,
                               const std::function<bool()>& cancelled);

// Seconds to wait as Retry-After says it, from a number or a date; nothing if it is neither.
std::optional<int64_t> retry_after_s(std::string_view value, int64_t now_s);

}  // namespace zinc
