// One HTTP GET over libcurl, and a set of them that run at the same time on one thread. Proxies are those of the
// environment, as curl reads it; redirects are followed, but never from https to http. A transfer that brings almost
// nothing for `stall_ms` is ended as stalled, before the first byte as well as after it.
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

// What the last response of a chain of redirects says about itself.
struct ReplyHead {
  long status = 0;
  std::optional<uint64_t> content_length;
  std::optional<ContentRange> content_range;
  std::string etag, last_modified, content_encoding, retry_after, next_page;
  // Hugging Face says these on the redirect, about the file behind it. The first response that states them is
  // believed: what the bytes come from must not vouch for itself.
  std::string linked_etag;
  std::optional<uint64_t> linked_bytes;

  // A header line, or the status line, which begins the next response.
  void take_line(std::string_view line);
};

struct TransferRequest {
  std::string url;
  std::string bearer_token;          // goes to the url's own host only
  std::vector<std::string> headers;  // "Name: value"
};

struct TransferLimits {
  int connect_ms = 20'000;
  int stall_ms = 30'000;
};

// Takes body bytes as they come; false ends the transfer. The head is complete by then.
using BodySink = std::function<bool(const ReplyHead& head, std::span<const std::byte> bytes)>;

class Transfer {
 public:
  Transfer(const TransferRequest& request, const TransferLimits& limits, BodySink sink);
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  const ReplyHead& head() const { return head_; }
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
  ReplyHead head_;
  uint64_t n_body_bytes_ = 0;
  uint64_t n_window_bytes_ = 0;  // n_body_bytes_ when the window began
  std::chrono::steady_clock::time_point window_began_;
  char error_text_[CURL_ERROR_SIZE] = {};
};

enum class TransferEnd : uint8_t {
  complete,    // the whole reply arrived; its status may be anything
  sink_ended,  // the sink had enough
  broken,      // no connection, cut, stalled: worth another try
  impossible,  // a wrong URL, too many redirects, no trust: another try changes nothing
};

struct FinishedTransfer {
  Transfer* transfer;
  TransferEnd end;
  std::string reason;  // for people, where it is not complete
};

class TransferSet {
 public:
  TransferSet();
  ~TransferSet();
  TransferSet(const TransferSet&) = delete;
  TransferSet& operator=(const TransferSet&) = delete;

  void add(Transfer& transfer);
  void remove(Transfer& transfer);  // a transfer that has not finished
  // Runs all of them for at most `wait_ms`; what has finished is out of the set.
  std::vector<FinishedTransfer> run(int wait_ms);

 private:
  CURLM* multi_;
  std::vector<Transfer*> running_;
};

// Runs one transfer to its end; `cancelled` is asked several times a second.
FinishedTransfer run_transfer(Transfer& transfer, const std::function<bool()>& cancelled);

// A small text (an API's answer, an index page), with its status checked. At most `max_bytes`.
struct TextReply {
  std::string body;
  std::string next_page;  // of the Link header
  std::string final_url;
};
Result<TextReply> get_text(const TransferRequest& request, const TransferLimits& limits,
                           const std::function<bool()>& cancelled, size_t max_bytes = size_t{32} << 20);

// Why a status that is no success is none, with what to do; `is_final` says whether another try changes nothing.
struct Refusal {
  ErrorCode code;
  std::string message;
  bool is_final;
};
Refusal explain_status(const std::string& url, long status);

// Whether a secret meant for one address may be sent to the other: same scheme, host and port.
bool is_same_origin(std::string_view a, std::string_view b);

// A URL for messages: public_url() of it, made safe for a terminal.
std::string shown_url(std::string_view url);

}  // namespace zinc
