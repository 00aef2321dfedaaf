// What /metrics says: the engines' counters in Prometheus' text form, under the names vLLM uses, so that existing
// dashboards work; what only this server counts is named zinc_*.
#pragma once

#include <string>

#include "server/served_model.h"

namespace zinc {

struct ServerCounts {
  uint64_t n_requests = 0;   // HTTP requests answered
  size_t n_connections = 0;  // open now
  double uptime_s = 0;
};

std::string metrics_text(const ModelList& models, const ServerCounts& counts);

}  // namespace zinc
