#include "server/otlp_exporter.h"

#include <curl/curl.h>
#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <optional>
#include <utility>

#include "base/version.h"
#include "server/random_id.h"

namespace zinc {
namespace {

constexpr size_t kMaxSpans = 4096;  // waiting; more are dropped
constexpr std::chrono::seconds kBatchTime{1};
constexpr long kSendMs = 5000;
constexpr std::string_view kTracesPath = "/v1/traces";

enum SpanKind : int { kInternal = 1, kServer = 2 };  // of the protocol
constexpr int kStatusError = 2;

struct TraceParent {
  std::string trace_id, span_id;
  bool is_sampled = true;
};

bool is_hex(std::string_view text) { return text.find_first_not_of("0123456789abcdef") == text.npos; }
bool is_zero(std::string_view text) { return text.find_first_not_of('0') == text.npos; }

// version-trace_id-parent_id-flags, in lower-case hexadecimal digits
std::optional<TraceParent> parse_traceparent(std::string_view text) {
  constexpr size_t kLength = 2 + 1 + 32 + 1 + 16 + 1 + 2;
  if (text.size() != kLength || text[2] != '-' || text[35] != '-' || text[52] != '-') return {};
  const std::string_view version = text.substr(0, 2), trace = text.substr(3, 32), span = text.substr(36, 16),
                         flags = text.substr(53);
  if (!is_hex(version) || version == "ff" || !is_hex(trace) || is_zero(trace) || !is_hex(span) || is_zero(span) ||
      !is_hex(flags))
    return {};
  const bool is_sampled = (std::string_view("0123456789abcdef").find(flags[1]) & 1) != 0;
  return TraceParent{.trace_id = std::string(trace), .span_id = std::string(span), .is_sampled = is_sampled};
}

std::string random_span_id() { return fmt::format("{:016x}", random_number() | 1); }

double number_in(const json::object& line, std::string_view name) {
  const json::value* value = line.if_contains(name);
  if (!value) return 0;
  if (value->is_string()) return std::atof(value->get_string().c_str());
  return value->is_number() ? value->to_number<double>() : 0;
}

std::string text_in(const json::object& line, std::string_view name) {
  const json::value* value = line.if_contains(name);
  return value && value->is_string() ? std::string(value->get_string()) : std::string();
}

json::object attribute(std::string_view key, const json::value& value) {
  json::object typed;
  if (value.is_string()) typed["stringValue"] = value;
  if (value.is_bool()) typed["boolValue"] = value;
  if (value.is_double()) typed["doubleValue"] = value;
  if (value.is_int64() || value.is_uint64()) typed["intValue"] = std::to_string(value.to_number<int64_t>());
  return {{"key", key}, {"value", std::move(typed)}};
}

// Fields of a log line under the names of OpenTelemetry's semantic conventions.
constexpr std::pair<std::string_view, std::string_view> kAttributes[] = {
    {"method", "http.request.method"},
    {"path", "url.path"},
    {"status", "http.response.status_code"},
    {"client", "client.address"},
    {"model", "gen_ai.response.model"},
    {"id", "gen_ai.response.id"},
    {"prompt_tokens", "gen_ai.usage.input_tokens"},
    {"completion_tokens", "gen_ai.usage.output_tokens"},
    {"cached_tokens", "zinc.cached_tokens"},
    {"finish", "zinc.finish_reason"},
    {"request_id", "zinc.request_id"},
    {"key", "zinc.key"},
    {"error", "error.message"},
    {"dropped", "zinc.dropped"},
};

std::string unix_ns(double seconds) { return fmt::format("{}", static_cast<int64_t>(seconds * 1e6) * 1000); }

json::object span(const TraceParent& parent, std::string name, SpanKind kind, double start_s, double end_s) {
  json::object out{{"traceId", parent.trace_id}, {"spanId", random_span_id()}};
  if (!parent.span_id.empty()) out["parentSpanId"] = parent.span_id;
  out["name"] = std::move(name);
  out["kind"] = static_cast<int>(kind);
  out["startTimeUnixNano"] = unix_ns(start_s);
  out["endTimeUnixNano"] = unix_ns(end_s);
  return out;
}

size_t ignore_bytes(const char*, size_t size, size_t n, void*) { return size * n; }

}  // namespace

bool is_traceparent(std::string_view text) { return parse_traceparent(text).has_value(); }

json::array spans_of(const json::object& line) {
  const TraceParent parent = parse_traceparent(text_in(line, "traceparent"))
                                 .value_or(TraceParent{.trace_id = random_span_id() + random_span_id(), .span_id = ""});
  if (!parent.is_sampled || !line.contains("path")) return {};
  const double start_s = number_in(line, "time"), end_s = start_s + number_in(line, "seconds");
  json::object request =
      span(parent, fmt::format("{} {}", text_in(line, "method"), text_in(line, "path")), kServer, start_s, end_s);
  json::array attributes;
  for (const auto& [field, name] : kAttributes) {
    if (const json::value* value = line.if_contains(field)) attributes.push_back(attribute(name, *value));
  }
  request["attributes"] = std::move(attributes);
  if (number_in(line, "status") >= 500) request["status"] = {{"code", kStatusError}};
  const TraceParent self{.trace_id = parent.trace_id, .span_id = text_in(request, "spanId")};
  json::array out{std::move(request)};
  if (line.contains("first_token_seconds")) {
    const double first_s = start_s + number_in(line, "first_token_seconds");
    out.push_back(span(self, "queue and prefill", kInternal, start_s, first_s));
    out.push_back(span(self, "decode", kInternal, first_s, end_s));
  }
  return out;
}

OtlpExporter::OtlpExporter(const std::string& endpoint, std::function<void(const std::string&)> report)
    : url_(endpoint), report_(std::move(report)) {
  static const CURLcode is_ready = curl_global_init(CURL_GLOBAL_DEFAULT);
  ZINC_CHECK(is_ready == CURLE_OK);
  while (url_.ends_with('/')) url_.pop_back();
  if (!url_.ends_with(kTracesPath)) url_ += kTracesPath;
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

OtlpExporter::~OtlpExporter() {
  thread_.request_stop();
  thread_.join();
}

void OtlpExporter::add(const json::object& log_line) {
  json::array spans = spans_of(log_line);
  if (spans.empty()) return;
  const std::lock_guard lock(mutex_);
  if (spans_.size() + spans.size() > kMaxSpans) return;
  for (json::value& span : spans) spans_.push_back(std::move(span));
}

void OtlpExporter::run(const std::stop_token& stop) {
  bool is_last = false;
  while (!is_last) {
    json::array batch;
    {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, stop, kBatchTime, [] { return false; });  // until stopped, or a batch is due
      is_last = stop.stop_requested();
      batch = std::exchange(spans_, {});
    }
    if (!batch.empty()) send(std::move(batch));
  }
}

void OtlpExporter::send(json::array spans) {
  const json::array resource{attribute("service.name", json::value("zinc")),
                             attribute("service.version", json::value(version_text()))};
  json::object scope_spans{{"scope", {{"name", "zinc"}}}};
  scope_spans["spans"] = std::move(spans);
  json::object resource_spans{{"resource", json::object{{"attributes", resource}}}};
  resource_spans["scopeSpans"] = json::array{std::move(scope_spans)};
  json::object message;
  message["resourceSpans"] = json::array{std::move(resource_spans)};
  const std::string body = to_json(message);
  CURL* easy = curl_easy_init();
  ZINC_CHECK(easy != nullptr);
  curl_slist* headers = curl_slist_append(nullptr, "Content-Type: application/json");
  curl_easy_setopt(easy, CURLOPT_URL, url_.c_str());
  curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers);
  curl_easy_setopt(easy, CURLOPT_POSTFIELDS, body.data());
  curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE, static_cast<long>(body.size()));
  curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, &ignore_bytes);
  curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, kSendMs);
  curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
  const CURLcode result = curl_easy_perform(easy);
  long status = 0;
  curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
  curl_slist_free_all(headers);
  curl_easy_cleanup(easy);
  const bool failed = result != CURLE_OK || status >= 300;
  if (failed && !has_failed_) {
    report_(fmt::format("{}: spans could not be exported: {}", url_,
                        result != CURLE_OK ? curl_easy_strerror(result) : fmt::format("status {}", status)));
  }
  has_failed_ = failed;
}

}  // namespace zinc
