// The text of /metrics in Prometheus format, under vLLM's metric names, so that existing dashboards work; metrics that
// vLLM does not have are named zinc_*.
#pragma once

#include <string>

#include "server/api_keys.h"
#include "server/served_model.h"

namespace zinc {

struct ServerCounts {
  uint64_t n_requests = 0;   // HTTP requests
  size_t n_connections = 0;  // open now
  double uptime_s = 0;
};

std::string metrics_text(const ModelList& models, const ServerCounts& counts,
                         const std::vector<std::shared_ptr<ApiKey>>& keys);

}  // namespace zinc
