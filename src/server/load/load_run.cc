#include "server/load/load_run.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <random>

namespace zinc {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kMaxWait{200};
constexpr size_t kBaselineEvents = 40;  // per stream, before the long prompt is sent
constexpr size_t kWarmupEvents = 5;     // ignored: other streams may still be in prefill
constexpr int kGapTokens = 1000;        // more than a stream generates during the prefill

json::object body_of(const LoadPlan& plan, const RequestMix& mix, size_t request) {
  json::object body = mix.body(request);
  if (!plan.model.empty()) body["model"] = plan.model;
  return body;
}

// A long output with text in every token: tokens without text are not visible in the stream.
json::object counting_body(const LoadPlan& plan, int stream) {
  const int first = 100 * (stream + 1);
  std::string text = "Count upwards and do not stop:";
  for (int i = 0; i < 8; ++i) text += fmt::format(" {},", first + i);
  json::object body =
      body_of(plan, RequestMix::of({.name = {}, .max_tokens = kGapTokens, .body = {{"ignore_eos", true}}}), size_t{0});
  body["messages"] = json::array{json::object{{"role", "user"}, {"content", text}}};
  return body;
}

// Sends requests 0 .. n-1 and waits until all are done.
std::vector<const LoadRequest*> run_requests(LoadClient& client, const LoadPlan& plan, const RequestMix& mix) {
  std::vector<const LoadRequest*> out;
  std::minstd_rand random(1);
  const double begin_s = client.now_s();
  double next_s = 0;  // open loop: exponential inter-arrival times, the same in every run
  while (out.size() < plan.n_requests || client.n_running() > 0) {
    const bool is_open = plan.per_second > 0;
    const double now_s = client.now_s() - begin_s;
    const bool should_send = is_open ? now_s >= next_s : client.n_running() < plan.n_streams;
    if (out.size() < plan.n_requests && should_send) {
      out.push_back(&client.send(out.size(), body_of(plan, mix, out.size())));
      const double uniform = (static_cast<double>(random()) - 0.5) / static_cast<double>(std::minstd_rand::max());
      if (is_open) next_s -= std::log(uniform) / plan.per_second;
      continue;
    }
    milliseconds wait = kMaxWait;
    if (is_open && out.size() < plan.n_requests) {
      wait = std::min(wait, milliseconds(static_cast<int64_t>(std::ceil((next_s - now_s) * 1e3))));
    }
    client.wait(wait);
  }
  return out;
}

double last_end_s(std::span<const LoadRequest* const> requests) {
  double end_s = 0;
  for (const LoadRequest* request : requests) end_s = std::max(end_s, request->end_s);
  return end_s;
}

void add_gaps(const LoadRequest& request, double from_s, double to_s, std::vector<double>& gaps) {
  for (size_t i = 1; i < request.chunk_s.size(); ++i) {
    if (request.chunk_s[i] >= from_s && request.chunk_s[i - 1] < to_s) {
      gaps.push_back(request.chunk_s[i] - request.chunk_s[i - 1]);
    }
  }
}

double longest_stall_s(std::span<const LoadRequest* const> streams, double from_s, double to_s) {
  std::vector<double> times;
  for (const LoadRequest* stream : streams) {
    std::ranges::copy_if(stream->chunk_s, std::back_inserter(times),
                         [&](double t) { return t >= from_s && t <= to_s; });
  }
  std::ranges::sort(times);
  double longest = 0;
  for (size_t i = 1; i < times.size(); ++i) longest = std::max(longest, times[i] - times[i - 1]);
  return longest;
}

LoadResult summarize(std::span<const LoadRequest* const> requests) {
  LoadResult out{.target = {}, .n_requests = requests.size()};
  std::vector<double> first, gaps, whole;
  for (const LoadRequest* request : requests) {
    if (!request->error.empty()) {
      if (out.n_failed++ == 0) out.first_error = request->error;
      continue;
    }
    first.push_back(request->first_token_s());
    whole.push_back(request->end_s - request->sent_s);
    add_gaps(*request, 0, request->end_s, gaps);
    out.n_prompt += request->n_prompt;
    out.n_cached += request->n_cached;
    out.n_completion += request->n_completion;
  }
  out.first_token_s = percentiles(std::move(first));
  out.inter_token_s = percentiles(std::move(gaps));
  out.whole_s = percentiles(std::move(whole));
  if (!requests.empty()) out.seconds = last_end_s(requests) - requests.front()->sent_s;
  return out;
}

SequentialBaseline compare_sequential(LoadPlan plan, const RequestMix& mix,
                                      std::span<const LoadRequest* const> loaded) {
  LoadClient client(plan.baseline_url, plan.key);
  plan.n_streams = 1;
  plan.per_second = 0;
  const std::vector<const LoadRequest*> baseline = run_requests(client, plan, mix);
  SequentialBaseline out{.tokens_per_s = summarize(baseline).tokens_per_s()};
  for (size_t i = 0; i < baseline.size(); ++i) {
    if (!baseline[i]->error.empty() || !loaded[i]->error.empty()) continue;
    ++out.n_compared;
    out.n_equal += baseline[i]->text == loaded[i]->text ? 1 : 0;
  }
  return out;
}

}  // namespace

Percentiles percentiles(std::vector<double> values) {
  if (values.empty()) return {};
  std::ranges::sort(values);
  const auto rank = [&](double share) {
    const auto at = static_cast<size_t>(std::ceil(share * static_cast<double>(values.size())));
    return values[std::max<size_t>(at, 1) - 1];
  };
  return {.p50 = rank(0.5), .p95 = rank(0.95), .p99 = rank(0.99), .largest = values.back()};
}

LoadResult run_load(const LoadPlan& plan, const RequestMix& mix) {
  LoadClient client(plan.url, plan.key);
  const std::vector<const LoadRequest*> requests = run_requests(client, plan, mix);
  LoadResult out = summarize(requests);
  out.target = plan.url;
  if (!plan.baseline_url.empty()) out.baseline = compare_sequential(plan, mix, requests);
  return out;
}

Result<StallResult> measure_stall(const LoadPlan& plan, int n_prompt_words) {
  LoadClient client(plan.url, plan.key);
  const json::object extra{{"ignore_eos", true}};
  const RequestMix prompt =
      RequestMix::of({.name = {}, .prompt_words = n_prompt_words, .max_tokens = 1, .body = extra});
  std::vector<const LoadRequest*> all;
  const auto stream_error = [&]() -> std::string {
    for (const LoadRequest* stream : all) {
      if (stream->is_done)
        return stream->error.empty() ? "a stream ended before the long prompt's first token: the server may ignore "
                                       "ignore_eos or max_tokens"
                                     : stream->error;
    }
    return "";
  };
  for (int i = 0; i < plan.n_streams; ++i) {
    all.push_back(&client.send(all.size(), counting_body(plan, i)));
  }
  while (std::ranges::any_of(all, [](const auto* s) { return s->chunk_s.size() < kBaselineEvents; })) {
    client.wait(kMaxWait);
    if (const std::string why = stream_error(); !why.empty()) return fail(ErrorCode::unavailable, "{}", why);
  }
  double warm_s = 0;
  for (const LoadRequest* stream : all) warm_s = std::max(warm_s, stream->chunk_s[kWarmupEvents]);
  const LoadRequest& arriving = client.send(all.size(), body_of(plan, prompt, all.size()));
  while (!arriving.is_done) {
    client.wait(kMaxWait);
    if (const std::string why = stream_error(); !why.empty()) return fail(ErrorCode::unavailable, "{}", why);
  }
  if (!arriving.error.empty()) return fail(ErrorCode::unavailable, "{}", arriving.error);
  std::vector<double> plain, loaded;
  for (const LoadRequest* stream : all) {
    add_gaps(*stream, warm_s, arriving.sent_s, plain);
    add_gaps(*stream, arriving.sent_s, arriving.chunk_s.front(), loaded);
  }
  return StallResult{.target = plan.url,
                     .n_streams = plan.n_streams,
                     .n_prompt = arriving.n_prompt,
                     .baseline_itl_s = percentiles(std::move(plain)),
                     .prefill_itl_s = percentiles(std::move(loaded)),
                     .longest_stall_s = longest_stall_s(all, arriving.sent_s, arriving.chunk_s.front()),
                     .first_token_s = arriving.first_token_s()};
}

}  // namespace zinc
