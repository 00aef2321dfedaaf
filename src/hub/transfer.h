// HTTP GET over libcurl, and a set of concurrent transfers on one thread. Uses curl's proxy variables and the
// certificates of base/certificates.h; follows redirects, but never from https to http. A transfer that receives almost
// nothing for `stall_ms`, before or after the first byte, ends as stalled.
#pragma once

#include <curl/curl.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace zinc {

struct ContentRange {  // "bytes 0-99/200": [first, end) of total
  uint64_t first = 0, end = 0;
  std::optional<uint64_t> total;
  bool operator==(const ContentRange&) const = default;
};
std::optional<ContentRange> parse_content_range(std::string_view value);

// Headers of the last response of a redirect chain.
struct ResponseHead {
  long status = 0;
  std::optional<uint64_t> content_length;
  std::optional<ContentRange> content_range;
  std::string etag, last_modified, content_encoding, retry_after, next_page;
  // Stated by Hugging Face on the redirect, about the target file. The first response that has them wins: the host that
  // sends the bytes must not vouch for them.
  std::string linked_etag;
  std::optional<uint64_t> linked_bytes;

  // Parses a header line, or a status line, which starts the next response.
  void parse_line(std::string_view line);
};

struct TransferRequest {
  std::string url;
  std::string bearer_token;          // sent to the host of `url` only
  std::vector<std::string> headers;  // "Name: value"
};

struct TransferLimits {
  int connect_ms = 20'000;
  int stall_ms = 30'000;
};

// Receives body bytes; false ends the transfer. The head is complete by then.
using BodySink = std::function<bool(const ResponseHead& head, std::span<const std::byte> bytes)>;

class Transfer {
 public:
  Transfer(const TransferRequest& request, const TransferLimits& limits, BodySink sink);
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  const ResponseHead& head() const { return head_; }
  std::string final_url() const;

 private:
  friend class TransferSet;
  struct Close {
    void operator()(CURL* handle) const { curl_easy_cleanup(handle); }
    void operator()(curl_slist* list) const { curl_slist_free_all(list); }
  };
  static size_t on_header(char* text, size_t size, size_t n, void* self);
  static size_t on_body(char* bytes, size_t size, size_t n, void* self);
  bool has_stalled(std::chrono::steady_clock::time_point now);

  std::unique_ptr<CURL, Close> handle_;
  std::unique_ptr<curl_slist, Close> headers_;
  TransferLimits limits_;
  BodySink sink_;
  ResponseHead head_;
  uint64_t n_body_bytes_ = 0;
  uint64_t n_window_bytes_ = 0;  // n_body_bytes_ when the window began
  std::chrono::steady_clock::time_point window_began_;
  char error_text_[CURL_ERROR_SIZE] = {};
};

enum class TransferEnd : uint8_t {
  complete,           // the whole response arrived, with any status
  stopped_by_sink,    // the sink returned false
  transient_failure,  // no connection, cut or stalled: worth a retry
  permanent_failure,  // invalid URL, too many redirects, untrusted certificate: a retry does not help
};

struct FinishedTransfer {
  Transfer* transfer;
  TransferEnd end;
  std::string reason;  // for the user, unless complete
};

class TransferSet {
 public:
  TransferSet();
  ~TransferSet();
  TransferSet(const TransferSet&) = delete;
  TransferSet& operator=(const TransferSet&) = delete;

  void add(Transfer& transfer);
  void remove(Transfer& transfer);  // a transfer that has not finished
  // Runs all transfers for at most `wait_ms`; finished ones leave the set.
  std::vector<FinishedTransfer> run(int wait_ms);

 private:
  CURLM* multi_;
  std::vector<Transfer*> running_;
};

// Runs one transfer to its end; polls `cancelled` several times a second.
FinishedTransfer run_transfer(Transfer& transfer, const std::function<bool()>& cancelled);

// Downloads a small text (API response, index page) of at most `max_bytes`; the status must be 200.
struct TextReply {
  std::string body;
  std::string next_page;  // of the Link header
  std::string final_url;
};
Result<TextReply> get_text(const TransferRequest& request, const TransferLimits& limits,
                           const std::function<bool()>& cancelled, size_t max_bytes = size_t{32} << 20);

// The error for a failed HTTP status, with a remedy; `is_final`: a retry does not help.
struct StatusError {
  ErrorCode code;
  std::string message;
  bool is_final;
};
StatusError explain_status(const std::string& url, long status);

// Same scheme, host and port: a secret for one URL may be sent to the other.
bool is_same_origin(std::string_view a, std::string_view b);

// A URL for messages: public_url(), sanitized for a terminal.
std::string display_url(std::string_view url);

}  // namespace zinc
