#include "engine/generator.h"

#include <algorithm>
#include <chrono>

namespace zinc {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// The device samples, with two steps in flight; only tokens are copied to the host.
Status decode_on_device(Sequence& sequence, OutputState& output, const GenerationOptions& options,
                        const GenerateHooks& hooks, GenerationResult& result) {
  const int begin = sequence.position(), n_free = sequence.context() - begin;
  const size_t n_before = output.tokens().size();
  int n_given = 0;
  const auto take = [&](TokenId id) {
    if (hooks.cancelled && hooks.cancelled()) {
      result.reason = StopReason::cancelled;
      return false;
    }
    const OutputState::TokenResult step = output.accept(id, n_given++ < n_free);
    if (!step.text.empty()) hooks.text(step.text);
    if (step.reason) result.reason = *step.reason;
    return !step.reason;
  };
  const int n = options.max_tokens > 0 ? std::min(options.max_tokens, n_free + 1) : n_free + 1;
  const Status done = sequence.decode_on_device(
      n, take, [&](int k) { return *output.device_sampling(n_before + static_cast<size_t>(k)); });
  result.n_decode_steps = sequence.position() - begin;
  return done;
}

void trace_request(const TraceOptions& options, const RequestTimes& times, const GenerationResult& result) {
  const std::string args =
      fmt::format(R"({{"prompt_tokens":{},"generated_tokens":{}}})", result.n_prompt_tokens, result.tokens.size());
  RequestTrace(options).add(1, times, stop_reason_name(result.reason), args);
}

// The host samples from each step's logits.
Status decode_on_host(Sequence& sequence, std::span<float> logits, OutputState& output, const GenerateHooks& hooks,
                      GenerationResult& result) {
  Sampler sampler;
  while (!hooks.cancelled || !hooks.cancelled()) {
    const Clock::time_point begin = hooks.trace ? Clock::now() : Clock::time_point();
    ZINC_TRY(step, output.accept(logits, sampler, sequence.position() < sequence.context()));
    if (hooks.trace) {
      Trace& trace = *hooks.trace->trace;
      trace.add_span(trace.add_track(hooks.trace->name, kHostTrack), "sampling", begin, Clock::now());
    }
    if (!step.text.empty()) hooks.text(step.text);
    if (step.reason) {
      result.reason = *step.reason;
      return ok_status();
    }
    ZINC_TRY(next, sequence.feed({&step.id, 1}));
    ++result.n_decode_steps;
    logits = next;
  }
  result.reason = StopReason::cancelled;
  return ok_status();
}

}  // namespace

Result<GenerationResult> generate(Sequence& sequence, const Tokenizer& tokenizer, std::span<const TokenId> prompt,
                                  const GenerationOptions& options, const GenerateHooks& hooks) {
  if (prompt.empty()) return fail(ErrorCode::invalid_input, "the prompt is empty");
  GenerationResult result;
  OutputState output(tokenizer, options, prompt);
  const std::optional<DeviceSampling> sampling =
      sequence.can_sample_on_device() ? output.device_sampling(prompt.size()) : std::optional<DeviceSampling>();

  const int n_before = sequence.position();
  const Clock::time_point prompt_start = Clock::now();
  std::span<float> logits;
  const auto read_prompt = [&]() -> Status {
    if (sampling) return sequence.feed_and_sample(prompt, *sampling, hooks.cancelled);
    ZINC_TRY(fed, sequence.feed(prompt, hooks.cancelled));
    logits = fed;
    return ok_status();
  };
  const Status read = read_prompt();
  result.prompt_s = seconds_since(prompt_start);
  result.n_prompt_tokens = sequence.position() - n_before;
  if (!read.ok()) {
    if (read.error().code != ErrorCode::cancelled) return read.error();
    result.reason = StopReason::cancelled;
    if (hooks.trace) trace_request(*hooks.trace, {prompt_start, prompt_start, {}, Clock::now()}, result);
    return result;
  }

  const Clock::time_point decode_start = Clock::now();
  const Status decoded = sampling ? decode_on_device(sequence, output, options, hooks, result)
                                  : decode_on_host(sequence, logits, output, hooks, result);
  if (!decoded.ok()) return decoded.error();
  if (const std::string_view rest = output.finish(); !rest.empty()) hooks.text(rest);
  const std::span<const TokenId> generated = output.tokens().subspan(prompt.size());
  result.tokens.assign(generated.begin(), generated.end());
  result.decode_s = seconds_since(decode_start);
  if (hooks.trace) trace_request(*hooks.trace, {prompt_start, prompt_start, decode_start, Clock::now()}, result);
  return result;
}

}  // namespace zinc
