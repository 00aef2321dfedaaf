// Exports one trace per request to an OpenTelemetry collector: OTLP over HTTP, as JSON. Spans are made from the log
// lines; a request with a `traceparent` header continues the client's trace. A thread sends them in batches; if the
// collector is slow or away, spans are dropped, never requests delayed. add() from any thread.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/json.h"

namespace zinc {

// Whether it is a W3C trace context of a known version, such as
// 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01.
bool is_traceparent(std::string_view text);

// The spans of one request: the request itself, then its prefill and decode. None if the client's trace is not sampled.
json::array spans_of(const json::object& log_line);

class OtlpExporter {
 public:
  // `endpoint` is the collector's base URL; /v1/traces is appended. `report` receives errors, once per outage.
  OtlpExporter(const std::string& endpoint, std::function<void(const std::string& message)> report);
  ~OtlpExporter();  // sends the rest

  void add(const json::object& log_line);

 private:
  void run(const std::stop_token& stop);
  void send(json::array spans);

  std::string url_;
  std::function<void(const std::string&)> report_;
  bool has_failed_ = false;  // the last batch
  std::mutex mutex_;         // guards the members below
  std::condition_variable_any changed_;
  json::array spans_;    // not sent yet
  std::jthread thread_;  // last: it uses the other members
};

}  // namespace zinc
