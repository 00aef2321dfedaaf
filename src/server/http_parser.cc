#include "server/http_parser.h"

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <string>

#include "base/check.h"
#include "server/body_decoder.h"

namespace zinc {

namespace http = boost::beast::http;
using boost::system::error_code;

namespace {

std::string lower_case(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

std::string_view view(boost::beast::string_view text) { return {text.data(), text.size()}; }

// Proxies may understand a folded header line (obs-fold, RFC 9112 5.2) differently. A line is consumed only once the
// byte after it is known, so a fold is never split between two calls of push().
bool has_folded_line(std::string_view header) {
  if (header.starts_with("\r\n")) return false;  // the end of the headers; the rest is the body
  header = header.substr(0, header.find("\r\n\r\n"));
  return header.find("\r\n ") != header.npos || header.find("\r\n\t") != header.npos;
}

// Clients join a base URL that ends in a slash with a path that starts with one.
std::string without_double_slashes(std::string_view path) {
  std::string out;
  for (const char c : path) {
    if (c != '/' || !out.ends_with('/')) out += c;
  }
  return out;
}

// "http://host/path", as sent to proxies (absolute-form), is the path with its own Host.
void set_target(std::string_view target, HttpRequest& request) {
  const size_t scheme = target.find("://");
  if (scheme != target.npos && !target.starts_with('/')) {
    target.remove_prefix(scheme + 3);
    const size_t path = std::min(target.find_first_of("/?"), target.size());
    request.authority = lower_case(target.substr(0, path));
    target.remove_prefix(path);
  }
  request.path = without_double_slashes(target.substr(0, target.find('?')));
  if (request.path.empty()) request.path = "/";
}

// Ambiguous framing is how one request is smuggled inside another past a proxy. Empty: the headers are sound.
std::string_view framing_error(const HttpRequest& request) {
  const auto n_of = [&](std::string_view name) {
    return std::ranges::count(request.headers, name, &HttpHeader::first);
  };
  if (n_of("transfer-encoding") > 0) {
    if (request.is_http_1_0) return "HTTP/1.0 has no Transfer-Encoding";
    if (n_of("transfer-encoding") > 1 || lower_case(request.header("transfer-encoding")) != "chunked")
      return "the only supported Transfer-Encoding is 'chunked'";
    if (n_of("content-length") > 0) return "Transfer-Encoding and Content-Length exclude each other";
  }
  if (n_of("host") > 1) return "more than one Host header";
  if (n_of("host") == 0 && !request.is_http_1_0) return "the Host header is missing";
  return {};
}

}  // namespace

struct HttpParser::BeastParser final : http::basic_parser<true> {
  explicit BeastParser(const HttpLimits& limits)
      : n_header_limit(limits.header_bytes), max_body_bytes(limits.body_bytes) {
    header_limit(static_cast<uint32_t>(limits.header_bytes));
    body_limit(limits.body_bytes);
    eager(true);
  }

  HttpRequest request;
  size_t n_header_limit, max_body_bytes;
  std::optional<BodyDecoder> decoder;  // of a compressed body
  State state = State::header;
  int error_status = 400;
  std::string error_message;

  void fail_with(int status, std::string message) {
    state = State::failed;
    error_status = status;
    error_message = std::move(message);
  }

 private:
  void on_request_impl(http::verb, boost::beast::string_view method, boost::beast::string_view target, int version,
                       error_code&) override {
    request.method = view(method);
    set_target(view(target), request);
    request.is_http_1_0 = version < 11;
  }
  void on_response_impl(int, boost::beast::string_view, int, error_code&) override {}
  void on_field_impl(http::field, boost::beast::string_view name, boost::beast::string_view value,
                     error_code&) override {
    request.headers.emplace_back(lower_case(view(name)), view(value));
  }
  void on_header_impl(error_code& error) override {
    state = State::body;
    if (const std::string_view reason = framing_error(request); !reason.empty()) {
      fail_with(400, fmt::format("malformed HTTP: {}", reason));
    } else if (const std::string coding = lower_case(request.header("content-encoding")); is_compressed(coding)) {
      decoder.emplace(max_body_bytes);
    } else if (!coding.empty() && coding != "identity") {
      fail_with(415, fmt::format("the Content-Encoding '{}' is not supported; expected gzip, deflate or none",
                                 coding.substr(0, 40)));
    }
    if (state == State::failed) {
      error = http::error::bad_field;
    } else if (!request.authority.empty()) {
      set_host(request.authority);
    }
  }
  void on_body_init_impl(boost::optional<uint64_t> const&, error_code&) override {}
  size_t on_body_impl(boost::beast::string_view body, error_code& error) override {
    append_body(view(body), error);
    return body.size();
  }
  void on_chunk_header_impl(uint64_t, boost::beast::string_view, error_code&) override {}
  size_t on_chunk_body_impl(uint64_t, boost::beast::string_view body, error_code& error) override {
    append_body(view(body), error);
    return body.size();
  }
  void on_finish_impl(error_code& error) override {
    if (decoder && decoder->is_truncated()) {
      fail_with(400, "the compressed request body is truncated");
      error = http::error::partial_message;
      return;
    }
    request.keeps_alive = keep_alive();
    state = State::done;
  }

  void append_body(std::string_view bytes, error_code& error) {
    if (!decoder) {
      request.body += bytes;
      return;
    }
    switch (decoder->decode(bytes, request.body)) {
      case BodyDecoder::State::ok:
        return;
      case BodyDecoder::State::corrupt:
        fail_with(400, "the request body is not valid gzip or deflate data");
        break;
      case BodyDecoder::State::too_large:
        fail_with(413, "the decompressed request body exceeds the size limit");
        break;
    }
    error = http::error::body_limit;
  }

  void set_host(std::string_view host) {
    for (HttpHeader& header : request.headers) {
      if (header.first == "host") header.second = host;
    }
  }
};

HttpParser::HttpParser(const HttpLimits& limits) : parser_(std::make_unique<BeastParser>(limits)) {}
HttpParser::HttpParser(HttpParser&&) noexcept = default;
HttpParser& HttpParser::operator=(HttpParser&&) noexcept = default;
HttpParser::~HttpParser() = default;

size_t HttpParser::push(std::string_view bytes) {
  size_t n_consumed = 0;
  while (n_consumed < bytes.size() && (state() == State::header || state() == State::body)) {
    if (state() == State::header && has_folded_line(bytes.substr(n_consumed))) {
      parser_->fail_with(400, "malformed HTTP: a header line is folded (obsolete line folding)");
      break;
    }
    error_code error;
    const size_t n = parser_->put(boost::asio::buffer(bytes.data() + n_consumed, bytes.size() - n_consumed), error);
    n_consumed += n;
    if (state() == State::failed) break;  // with a reason of its own
    if (error == http::error::need_more) {
      if (n == 0) break;
    } else if (error == http::error::header_limit) {
      parser_->fail_with(431, "the request line and headers exceed the size limit");
    } else if (error == http::error::body_limit) {
      parser_->fail_with(413, "the request body exceeds the size limit");
    } else if (error) {
      parser_->fail_with(400, "malformed HTTP: " + error.message());
    }
  }
  // Unconsumed input is a header, a chunk header or a trailer; body bytes are consumed as they arrive.
  const bool wants_more = state() == State::header || state() == State::body;
  if (wants_more && bytes.size() - n_consumed > parser_->n_header_limit) {
    parser_->fail_with(431, state() == State::header ? "the request line and headers exceed the size limit"
                                                     : "a chunk header or the trailer exceeds the size limit");
  }
  return n_consumed;
}

HttpParser::State HttpParser::state() const { return parser_->state; }
const HttpRequest& HttpParser::head() const { return parser_->request; }
size_t HttpParser::n_body_bytes() const { return parser_->request.body.size(); }
int HttpParser::error_status() const { return parser_->error_status; }
std::string_view HttpParser::error_message() const { return parser_->error_message; }

bool HttpParser::wants_continue() const {
  return state() == State::body && lower_case(parser_->request.header("expect")) == "100-continue";
}

HttpRequest HttpParser::take() {
  ZINC_CHECK(state() == State::done);
  return std::move(parser_->request);
}

}  // namespace zinc
