#include "server/http_parser.h"

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/error.hpp>

#include <cctype>
#include <string>

#include "base/check.h"

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

}  // namespace

struct HttpParser::BeastParser final : http::basic_parser<true> {
  explicit BeastParser(const HttpLimits& limits) : n_header_limit(limits.header_bytes) {
    header_limit(static_cast<uint32_t>(limits.header_bytes));
    body_limit(limits.body_bytes);
    eager(true);
  }

  HttpRequest request;
  size_t n_header_limit;
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
    const std::string_view whole = view(target);
    request.path = whole.substr(0, whole.find('?'));
    request.is_http_1_0 = version < 11;
  }
  void on_response_impl(int, boost::beast::string_view, int, error_code&) override {}
  void on_field_impl(http::field, boost::beast::string_view name, boost::beast::string_view value,
                     error_code&) override {
    request.headers.emplace_back(lower_case(view(name)), view(value));
  }
  void on_header_impl(error_code&) override { state = State::body; }
  void on_body_init_impl(boost::optional<uint64_t> const&, error_code&) override {}
  size_t on_body_impl(boost::beast::string_view body, error_code&) override {
    request.body.append(body.data(), body.size());
    return body.size();
  }
  void on_chunk_header_impl(uint64_t, boost::beast::string_view, error_code&) override {}
  size_t on_chunk_body_impl(uint64_t, boost::beast::string_view body, error_code&) override {
    request.body.append(body.data(), body.size());
    return body.size();
  }
  void on_finish_impl(error_code&) override {
    request.keeps_alive = keep_alive();
    state = State::done;
  }
};

HttpParser::HttpParser(const HttpLimits& limits) : parser_(std::make_unique<BeastParser>(limits)) {}
HttpParser::HttpParser(HttpParser&&) noexcept = default;
HttpParser& HttpParser::operator=(HttpParser&&) noexcept = default;
HttpParser::~HttpParser() = default;

size_t HttpParser::push(std::string_view bytes) {
  size_t n_consumed = 0;
  while (n_consumed < bytes.size() && (state() == State::header || state() == State::body)) {
    error_code error;
    const size_t n = parser_->put(boost::asio::buffer(bytes.data() + n_consumed, bytes.size() - n_consumed), error);
    n_consumed += n;
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
