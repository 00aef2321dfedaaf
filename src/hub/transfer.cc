#include "hub/transfer.h"

#include <algorithm>
#include <charconv>
#include <mutex>

#include "base/certificates.h"
#include "base/check.h"
#include "base/sanitize_for_terminal.h"
#include "hub/source.h"

namespace zinc {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kMinBytesPerS = 256;  // slower than this over a whole stall window counts as stalled
constexpr long kMaxRedirects = 10;
constexpr long kBufferBytes = 256 << 10;

std::string lower(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return out;
}

std::string_view trim(std::string_view text) {
  const char* const blanks = " \t\r\n";
  const size_t begin = text.find_first_not_of(blanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(blanks) - begin + 1);
}

std::optional<uint64_t> parse_number(std::string_view text) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// The address in `<address>; rel="next"`.
std::string next_of(std::string_view link) {
  const size_t open = link.find('<'), close = link.find('>');
  if (open == std::string_view::npos || close == std::string_view::npos || close < open) return {};
  if (link.find("rel=\"next\"", close) == std::string_view::npos) return {};
  return std::string(link.substr(open + 1, close - open - 1));
}

void init_curl() {
  static std::once_flag once;
  std::call_once(once, [] { ZINC_CHECK(curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK); });
}

// What curl said, and what to do if it had no certificates to verify the server with.
std::string explain(CURLcode code, const char* error_text) {
  const std::string detail = sanitize_for_terminal(error_text[0] ? error_text : curl_easy_strerror(code));
  if (code != CURLE_PEER_FAILED_VERIFICATION || !certificate_bundle().empty()) return detail;
  return detail + " (this system has no CA certificates: install the package ca-certificates, or set SSL_CERT_FILE)";
}

bool is_permanent(CURLcode code) {
  static constexpr CURLcode kPermanent[] = {
      CURLE_UNSUPPORTED_PROTOCOL, CURLE_URL_MALFORMAT,        CURLE_TOO_MANY_REDIRECTS, CURLE_PEER_FAILED_VERIFICATION,
      CURLE_SSL_CACERT_BADFILE,   CURLE_BAD_CONTENT_ENCODING, CURLE_SSL_ISSUER_ERROR,   CURLE_OUT_OF_MEMORY,
      CURLE_NOT_BUILT_IN,         CURLE_COULDNT_RESOLVE_PROXY};
  return std::ranges::find(kPermanent, code) != std::end(kPermanent);
}

}  // namespace

std::optional<ContentRange> parse_content_range(std::string_view value) {
  constexpr std::string_view kUnit = "bytes ";
  if (!lower(value).starts_with(kUnit)) return std::nullopt;
  value = trim(value.substr(kUnit.size()));
  const size_t slash = value.find('/');
  if (slash == std::string_view::npos) return std::nullopt;
  const std::string_view range = value.substr(0, slash), total = value.substr(slash + 1);
  ContentRange out;
  if (total != "*") {
    out.total = parse_number(total);
    if (!out.total) return std::nullopt;
  }
  if (range == "*") return out;  // of a 416 response: no range, only the total
  const size_t dash = range.find('-');
  if (dash == std::string_view::npos) return std::nullopt;
  const auto first = parse_number(range.substr(0, dash)), last = parse_number(range.substr(dash + 1));
  if (!first || !last || *last < *first || *last == UINT64_MAX || (out.total && *last >= *out.total))
    return std::nullopt;
  out.first = *first;
  out.end = *last + 1;
  return out;
}

void ResponseHead::parse_line(std::string_view line) {
  if (line.starts_with("HTTP/")) {
    ResponseHead next;
    next.linked_etag = std::move(linked_etag);
    next.linked_bytes = linked_bytes;
    *this = std::move(next);
    const size_t space = line.find(' ');
    if (space != std::string_view::npos) {
      status = static_cast<long>(parse_number(trim(line.substr(space, 5))).value_or(0));
    }
    return;
  }
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos) return;
  const std::string name = lower(trim(line.substr(0, colon)));
  const std::string_view value = trim(line.substr(colon + 1));
  if (name == "content-length") content_length = parse_number(value);
  if (name == "content-range") content_range = parse_content_range(value);
  if (name == "etag") etag = value;
  if (name == "last-modified") last_modified = value;
  if (name == "content-encoding") content_encoding = lower(value);
  if (name == "retry-after") retry_after = value;
  if (name == "link") next_page = next_of(value);
  if (name == "x-linked-etag" && linked_etag.empty()) linked_etag = value;
  if (name == "x-linked-size" && !linked_bytes) linked_bytes = parse_number(value);
}

Transfer::Transfer(const TransferRequest& request, const TransferLimits& limits, BodySink sink)
    : limits_(limits), sink_(std::move(sink)) {
  init_curl();
  handle_.reset(curl_easy_init());
  ZINC_CHECK(handle_);
  CURL* h = handle_.get();
  for (const std::string& header : request.headers) {
    curl_slist* longer = curl_slist_append(headers_.get(), header.c_str());
    ZINC_CHECK(longer);
    static_cast<void>(headers_.release());
    headers_.reset(longer);
  }
  curl_easy_setopt(h, CURLOPT_URL, request.url.c_str());
  curl_easy_setopt(h, CURLOPT_HTTPHEADER, headers_.get());
  curl_easy_setopt(h, CURLOPT_USERAGENT, "zinc");
  curl_easy_setopt(h, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(h, CURLOPT_REDIR_PROTOCOLS_STR, lower(request.url).starts_with("https:") ? "https" : "http,https");
  if (const std::string bundle = certificate_bundle(); !bundle.empty())
    curl_easy_setopt(h, CURLOPT_CAINFO, bundle.c_str());
  curl_easy_setopt(h, CURLOPT_FOLLOWLOCATION, 1L);
  curl_easy_setopt(h, CURLOPT_MAXREDIRS, kMaxRedirects);
  curl_easy_setopt(h, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1);  // one connection per range
  curl_easy_setopt(h, CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(limits.connect_ms));
  curl_easy_setopt(h, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(h, CURLOPT_BUFFERSIZE, kBufferBytes);
  curl_easy_setopt(h, CURLOPT_ERRORBUFFER, error_text_);
  curl_easy_setopt(h, CURLOPT_PRIVATE, this);
  curl_easy_setopt(h, CURLOPT_HEADERFUNCTION, on_header);
  curl_easy_setopt(h, CURLOPT_HEADERDATA, this);
  curl_easy_setopt(h, CURLOPT_WRITEFUNCTION, on_body);
  curl_easy_setopt(h, CURLOPT_WRITEDATA, this);
  if (!request.bearer_token.empty()) {
    curl_easy_setopt(h, CURLOPT_HTTPAUTH, CURLAUTH_BEARER);
    curl_easy_setopt(h, CURLOPT_XOAUTH2_BEARER, request.bearer_token.c_str());
  }
}

size_t Transfer::on_header(char* text, size_t size, size_t n, void* self) {
  static_cast<Transfer*>(self)->head_.parse_line({text, size * n});
  return size * n;
}

size_t Transfer::on_body(char* bytes, size_t size, size_t n, void* self) {
  Transfer& transfer = *static_cast<Transfer*>(self);
  const size_t n_bytes = size * n;
  transfer.n_body_bytes_ += n_bytes;
  return transfer.sink_(transfer.head_, std::as_bytes(std::span(bytes, n_bytes))) ? n_bytes : CURL_WRITEFUNC_ERROR;
}

std::string Transfer::final_url() const {
  const char* url = nullptr;
  curl_easy_getinfo(handle_.get(), CURLINFO_EFFECTIVE_URL, &url);
  return url ? url : "";
}

bool Transfer::has_stalled(Clock::time_point now) {
  const auto window = std::chrono::milliseconds(limits_.stall_ms);
  if (now - window_began_ < window) return false;
  const uint64_t min_bytes = std::max<uint64_t>(1, kMinBytesPerS * static_cast<uint64_t>(limits_.stall_ms) / 1000);
  const bool stalled = n_body_bytes_ - n_window_bytes_ < min_bytes;
  window_began_ = now;
  n_window_bytes_ = n_body_bytes_;
  return stalled;
}

TransferSet::TransferSet() : multi_((init_curl(), curl_multi_init())) { ZINC_CHECK(multi_); }

TransferSet::~TransferSet() {
  for (Transfer* transfer : running_) curl_multi_remove_handle(multi_, transfer->handle_.get());
  curl_multi_cleanup(multi_);
}

void TransferSet::add(Transfer& transfer) {
  transfer.window_began_ = Clock::now();
  ZINC_CHECK(curl_multi_add_handle(multi_, transfer.handle_.get()) == CURLM_OK);
  running_.push_back(&transfer);
}

void TransferSet::remove(Transfer& transfer) {
  curl_multi_remove_handle(multi_, transfer.handle_.get());
  std::erase(running_, &transfer);
}

std::vector<FinishedTransfer> TransferSet::run(int wait_ms) {
  std::vector<FinishedTransfer> finished;
  int n_running = 0, n_left = 0;
  curl_multi_perform(multi_, &n_running);
  if (n_running > 0 || running_.empty()) curl_multi_poll(multi_, nullptr, 0, wait_ms, nullptr);
  curl_multi_perform(multi_, &n_running);
  while (const CURLMsg* message = curl_multi_info_read(multi_, &n_left)) {
    if (message->msg != CURLMSG_DONE) continue;
    const CURLcode code = message->data.result;
    Transfer* transfer = nullptr;
    curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &transfer);
    const TransferEnd end = code == CURLE_OK            ? TransferEnd::complete
                            : code == CURLE_WRITE_ERROR ? TransferEnd::stopped_by_sink
                            : is_permanent(code)        ? TransferEnd::permanent_failure
                                                        : TransferEnd::transient_failure;
    finished.push_back({transfer, end, code == CURLE_OK ? "" : explain(code, transfer->error_text_)});
    remove(*transfer);
  }
  const Clock::time_point now = Clock::now();
  const std::vector<Transfer*> running = running_;
  for (Transfer* transfer : running) {
    if (!transfer->has_stalled(now)) continue;
    remove(*transfer);
    finished.push_back({transfer, TransferEnd::transient_failure,
                        fmt::format("the connection stalled for {:.3g} s", transfer->limits_.stall_ms / 1000.0)});
  }
  return finished;
}

FinishedTransfer run_transfer(Transfer& transfer, const std::function<bool()>& cancelled) {
  TransferSet set;
  set.add(transfer);
  for (;;) {
    std::vector<FinishedTransfer> finished = set.run(100);
    if (!finished.empty()) return std::move(finished.front());
    if (cancelled()) return {&transfer, TransferEnd::stopped_by_sink, "interrupted"};
  }
}

Result<TextReply> get_text(const TransferRequest& request, const TransferLimits& limits,
                           const std::function<bool()>& cancelled, size_t max_bytes) {
  constexpr int kTries = 3;
  std::string reason;
  for (int i = 0; i < kTries; ++i) {
    std::string body;
    bool too_long = false;
    Transfer transfer(request, limits, [&](const ResponseHead&, std::span<const std::byte> bytes) {
      too_long = body.size() + bytes.size() > max_bytes;
      if (!too_long) body.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      return !too_long;
    });
    const FinishedTransfer done = run_transfer(transfer, cancelled);
    if (cancelled()) return fail(ErrorCode::cancelled, "interrupted");
    if (too_long) {
      return fail(ErrorCode::invalid_input, "{}: the response is longer than {} bytes", display_url(request.url),
                  max_bytes);
    }
    if (done.end == TransferEnd::complete && transfer.head().status == 200) {
      return TextReply{std::move(body), transfer.head().next_page, transfer.final_url()};
    }
    if (done.end == TransferEnd::complete) {
      const StatusError error = explain_status(request.url, transfer.head().status);
      reason = error.message;
      if (error.is_final) return fail(error.code, "{}", reason);
    } else {
      reason = fmt::format("{}: {}", display_url(request.url), done.reason);
      if (done.end == TransferEnd::permanent_failure) break;
    }
  }
  return fail(ErrorCode::io, "{}; check the network and the proxy settings, and try again", reason);
}

StatusError explain_status(const std::string& url, long status) {
  const std::string where = display_url(url);
  if (status == 401 || status == 403) {
    return {
        ErrorCode::invalid_input,
        fmt::format("{}: access denied (HTTP {}); check the name; if the model is private or gated, set HF_TOKEN to a "
                    "token that may read it",
                    where, status),
        true};
  }
  if (status == 404 || status == 410) {
    return {ErrorCode::not_found, fmt::format("{}: no such file (HTTP {}); check the name", where, status), true};
  }
  const bool is_transient = status == 408 || status == 425 || status == 429 || status >= 500;
  return {ErrorCode::io, fmt::format("{}: the server returned HTTP {}", where, status), !is_transient};
}

bool is_same_origin(std::string_view a, std::string_view b) {
  const auto origin = [](std::string_view url) {
    const size_t scheme = url.find("://");
    if (scheme == std::string_view::npos) return std::string();
    return lower(url.substr(0, url.find_first_of("/?#", scheme + 3)));
  };
  return !origin(a).empty() && origin(a) == origin(b);
}

std::string display_url(std::string_view url) { return sanitize_for_terminal(public_url(url), 400); }

}  // namespace zinc
