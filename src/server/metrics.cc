#include "server/metrics.h"

#include <fmt/format.h>

namespace zinc {
namespace {

struct NamedHistogram {
  std::string_view name, help;
  Histogram EngineStats::*member;
};

constexpr NamedHistogram kHistograms[] = {
    {"vllm:time_to_first_token_seconds", "Time from submission to the first token.",
     &EngineStats::time_to_first_token_s},
    {"vllm:inter_token_latency_seconds", "Time between output tokens.", &EngineStats::inter_token_s},
    {"vllm:e2e_request_latency_seconds", "Time from submission to completion.", &EngineStats::e2e_s},
    {"vllm:request_queue_time_seconds", "Time in the queue.", &EngineStats::queue_s},
    {"vllm:request_prefill_time_seconds", "Time in prefill.", &EngineStats::prefill_s},
    {"vllm:request_decode_time_seconds", "Time in decode.", &EngineStats::decode_s},
    {"vllm:request_prompt_tokens", "Prompt tokens per request.", &EngineStats::prompt_tokens},
    {"vllm:request_generation_tokens", "Output tokens per request.", &EngineStats::generated_tokens},
    {"vllm:iteration_tokens_total", "Tokens per engine step.", &EngineStats::step_tokens},
    {"zinc_step_seconds", "Duration of an engine step.", &EngineStats::step_s},
};

struct ScalarMetric {
  std::string_view name, type, help;
  double (*value)(const EngineStats& stats);
};

double kv_usage(const EngineStats& stats) {
  double max_usage = 0;
  for (const PageUse& use : stats.pages) {
    if (use.n_total > 0) max_usage = std::max(max_usage, static_cast<double>(use.n_in_use) / use.n_total);
  }
  return max_usage;
}

double pages_in_use(const EngineStats& stats) {
  double n = 0;
  for (const PageUse& use : stats.pages) n += use.n_in_use;
  return n;
}

double as_double(uint64_t count) { return static_cast<double>(count); }

constexpr ScalarMetric kScalarMetrics[] = {
    {"vllm:num_requests_running", "gauge", "Running requests.",
     [](const EngineStats& s) { return static_cast<double>(s.n_prefilling + s.n_decoding); }},
    {"vllm:num_requests_waiting", "gauge", "Queued requests.",
     [](const EngineStats& s) { return static_cast<double>(s.n_waiting); }},
    {"vllm:kv_cache_usage_perc", "gauge", "Fraction of KV cache pages in use, 0 to 1.", kv_usage},
    {"vllm:num_preemptions_total", "counter", "Running requests that were preempted because the KV cache was full.",
     [](const EngineStats& s) { return as_double(s.n_preempted); }},
    {"zinc_cache_pages_in_use", "gauge", "KV cache pages held by running requests.", pages_in_use},
    {"zinc_requests_submitted_total", "counter", "Accepted requests.",
     [](const EngineStats& s) { return as_double(s.n_submitted); }},
    {"vllm:prompt_tokens_total", "counter", "Prompt tokens of admitted requests.",
     [](const EngineStats& s) { return as_double(s.n_prompt_tokens); }},
    {"vllm:generation_tokens_total", "counter", "Generated tokens.",
     [](const EngineStats& s) { return as_double(s.n_generated_tokens); }},
    {"vllm:prefix_cache_queries_total", "counter", "Prompt tokens looked up in the prefix cache.",
     [](const EngineStats& s) { return as_double(s.n_prompt_tokens); }},
    {"vllm:prefix_cache_hits_total", "counter", "Prompt tokens found in the prefix cache.",
     [](const EngineStats& s) { return as_double(s.n_cached_tokens); }},
    {"zinc_prefilled_tokens_total", "counter", "Tokens computed in prefill, also again after a preemption.",
     [](const EngineStats& s) { return as_double(s.n_prefilled_tokens); }},
    {"zinc_evicted_pages_total", "counter", "KV cache pages evicted from the prefix cache.",
     [](const EngineStats& s) { return as_double(s.n_evicted_pages); }},
    {"zinc_requests_rejected_total", "counter", "Rejected requests.",
     [](const EngineStats& s) { return as_double(s.n_rejected); }},
    {"vllm:spec_decode_num_drafts_total", "counter", "Verified drafts of speculative decoding.",
     [](const EngineStats& s) { return as_double(s.speculation.n_drafts); }},
    {"vllm:spec_decode_num_draft_tokens_total", "counter", "Drafted tokens.",
     [](const EngineStats& s) { return as_double(s.speculation.n_drafted_tokens); }},
    {"vllm:spec_decode_num_accepted_tokens_total", "counter", "Drafted tokens that were accepted.",
     [](const EngineStats& s) { return as_double(s.speculation.n_accepted_tokens); }},
    {"zinc_speculation_acceptance", "gauge", "Recent probability that a drafted token is accepted.",
     [](const EngineStats& s) { return s.speculation.acceptance; }},
    {"zinc_speculation_predicted_speedup", "gauge",
     "Speedup that the cost model expects of drafts; below 1.1 nothing is drafted.",
     [](const EngineStats& s) { return s.speculation.predicted_speedup; }},
    {"zinc_speculation_row_cost", "gauge", "Time of one more row in a decode-only step, as a fraction of the step's.",
     [](const EngineStats& s) { return s.speculation.row_cost; }},
    {"zinc_speculation_failed", "gauge", "1 if the MTP block or the draft model failed and is not used any more.",
     [](const EngineStats& s) { return s.speculation.error.empty() ? 0.0 : 1.0; }},
    {"zinc_steps_total", "counter", "Engine steps.", [](const EngineStats& s) { return as_double(s.n_steps); }},
};

// Label values escape backslash, quote and newline.
std::string label(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || c == '"') out += '\\';
    if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
  return out;
}

void header(std::string_view name, std::string_view type, std::string_view help, std::string& out) {
  out += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
}

void write_histogram(std::string_view name, const std::string& model, const Histogram& histogram, std::string& out) {
  uint64_t below = 0;
  for (size_t i = 0; i < histogram.bounds.size(); ++i) {
    below += histogram.counts[i];
    out += fmt::format("{}_bucket{{model_name=\"{}\",le=\"{}\"}} {}\n", name, model, histogram.bounds[i], below);
  }
  out += fmt::format("{}_bucket{{model_name=\"{}\",le=\"+Inf\"}} {}\n", name, model, histogram.n);
  out += fmt::format("{}_sum{{model_name=\"{}\"}} {}\n{}_count{{model_name=\"{}\"}} {}\n", name, model, histogram.sum,
                     name, model, histogram.n);
}

struct Snapshot {
  std::string model;
  EngineStats stats;
};

std::string_view vllm_reason(StopReason reason) {
  switch (reason) {
    case StopReason::end_token:
    case StopReason::stop_string:
      return "stop";
    case StopReason::max_tokens:
    case StopReason::context_full:
      return "length";
    case StopReason::cancelled:
      return "abort";
    case StopReason::failed:
      return "error";
  }
  return "error";
}

void write_finish_reasons(const std::vector<Snapshot>& snapshots, std::string& out) {
  header("vllm:request_success_total", "counter", "Finished requests, by reason.", out);
  for (const Snapshot& snapshot : snapshots) {
    for (const std::string_view reason : {"stop", "length", "abort", "error"}) {
      uint64_t n = 0;
      for (size_t i = 0; i < snapshot.stats.n_ended.size(); ++i) {
        if (vllm_reason(static_cast<StopReason>(i)) == reason) n += snapshot.stats.n_ended[i];
      }
      out += fmt::format("vllm:request_success_total{{model_name=\"{}\",finished_reason=\"{}\"}} {}\n", snapshot.model,
                         reason, n);
    }
  }
  header("zinc_prefix_lookups_total", "counter", "Prefix cache lookups, by reason of the miss.", out);
  for (const Snapshot& snapshot : snapshots) {
    for (size_t i = 0; i < snapshot.stats.n_lookups.size(); ++i) {
      out += fmt::format("zinc_prefix_lookups_total{{model_name=\"{}\",miss=\"{}\"}} {}\n", snapshot.model,
                         cache_miss_name(static_cast<CacheMiss>(i)), snapshot.stats.n_lookups[i]);
    }
  }
}

void write_draft_decisions(const std::vector<Snapshot>& snapshots, std::string& out) {
  header("zinc_speculation_steps_total", "counter",
         "Steps without prompt tokens, by what speculative decoding did: drafted, or why not.", out);
  for (const Snapshot& snapshot : snapshots) {
    for (size_t i = 0; i < kDraftDecisionNames.size(); ++i) {
      out += fmt::format("zinc_speculation_steps_total{{model_name=\"{}\",decision=\"{}\"}} {}\n", snapshot.model,
                         kDraftDecisionNames[i], snapshot.stats.speculation.n_steps[i]);
    }
  }
}

struct KeyMetric {
  std::string_view name, type, help;
  double (*value)(const KeyUsage& usage);
};

constexpr KeyMetric kKeyMetrics[] = {
    {"zinc_key_requests_total", "counter", "Accepted requests, by API key.",
     [](const KeyUsage& u) { return as_double(u.n_requests); }},
    {"zinc_key_requests_running", "gauge", "Running requests, by API key.",
     [](const KeyUsage& u) { return static_cast<double>(u.n_running); }},
    {"zinc_key_prompt_tokens_total", "counter", "Prompt tokens, by API key.",
     [](const KeyUsage& u) { return as_double(u.n_prompt_tokens); }},
    {"zinc_key_generation_tokens_total", "counter", "Generated tokens, by API key.",
     [](const KeyUsage& u) { return as_double(u.n_completion_tokens); }},
    {"zinc_key_over_rate_total", "counter", "Requests rejected for their rate, by API key.",
     [](const KeyUsage& u) { return as_double(u.n_over_rate); }},
    {"zinc_key_over_concurrency_total", "counter", "Requests rejected for their concurrency, by API key.",
     [](const KeyUsage& u) { return as_double(u.n_over_concurrency); }},
};

void write_key_metrics(const std::vector<std::shared_ptr<ApiKey>>& keys, std::string& out) {
  if (keys.empty()) return;
  for (const KeyMetric& metric : kKeyMetrics) {
    header(metric.name, metric.type, metric.help, out);
    for (const std::shared_ptr<ApiKey>& key : keys) {
      out += fmt::format("{}{{key=\"{}\"}} {}\n", metric.name, label(key->options().name), metric.value(key->usage()));
    }
  }
}

}  // namespace

std::string metrics_text(const ModelList& models, const ServerCounts& counts,
                         const std::vector<std::shared_ptr<ApiKey>>& keys) {
  std::vector<Snapshot> snapshots;
  for (const ModelRef& model : models.all()) snapshots.push_back({label(model->name), model->engine->stats()});
  std::string out;
  for (const ScalarMetric& number : kScalarMetrics) {
    header(number.name, number.type, number.help, out);
    for (const Snapshot& snapshot : snapshots) {
      out += fmt::format("{}{{model_name=\"{}\"}} {}\n", number.name, snapshot.model, number.value(snapshot.stats));
    }
  }
  write_finish_reasons(snapshots, out);
  write_draft_decisions(snapshots, out);
  for (const NamedHistogram& histogram : kHistograms) {
    header(histogram.name, "histogram", histogram.help, out);
    for (const Snapshot& snapshot : snapshots) {
      write_histogram(histogram.name, snapshot.model, snapshot.stats.*histogram.member, out);
    }
  }
  write_key_metrics(keys, out);
  header("zinc_http_requests_total", "counter", "HTTP requests.", out);
  out += fmt::format("zinc_http_requests_total {}\n", counts.n_requests);
  header("zinc_http_connections", "gauge", "Open connections.", out);
  out += fmt::format("zinc_http_connections {}\n", counts.n_connections);
  header("zinc_uptime_seconds", "gauge", "Time since the server started.", out);
  out += fmt::format("zinc_uptime_seconds {:.3f}\n", counts.uptime_s);
  return out;
}

}  // namespace zinc
