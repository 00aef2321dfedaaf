#include "engine/model_runner.h"

#include <algorithm>

#include "base/format_memory.h"
#include "cache/cache_plan.h"
#include "engine/engine_memory.h"
#include "sample/sampler.h"

namespace zinc {

Result<ModelRunner> ModelRunner::create(const ModelInstance& instance, const RunnerOptions& options) {
  const std::vector<LayerCache>& layers = instance.model().caches;
  const std::vector<PageGroup> groups = page_groups(layers);
  const int wanted = options.step_tokens > 0 ? options.step_tokens : instance.backend_info().step_tokens;
  ModelRunner runner(instance, options.context, std::min(wanted, options.context), groups.size());
  CacheSizes sizes{.n_pages = {}, .max_length = options.context, .kv_format = &instance.kv_format()};
  for (const PageGroup& group : groups) {
    const int n_context = pages_of(options.context);
    const int n = group.window > 0 ? window_pages(group.window, runner.step_tokens_, options.context) : n_context;
    sizes.n_pages.push_back(n);
    std::vector<PageId>& pages = runner.sequence_.pages.emplace_back();
    for (int i = 0; i < n_context; ++i) pages.push_back(static_cast<PageId>(i % n));
  }
  runner.sequence_.slot = 0;
  const Bucket bucket{.max_tokens = runner.step_tokens_,
                      .max_outputs = options.all_logits ? runner.step_tokens_ : 1,
                      .keep_values = options.keep_values,
                      .time_kernels = options.time_kernels};
  ZINC_TRY(devices, measure_devices(instance, sizes, bucket));
  const std::vector<ModelMemory> memory = with_shared_host(instance, devices);
  const MemoryLimits limits = with_shared_host(instance, instance.memory_limits());
  for (size_t d = 0; d < memory.size(); ++d) {
    if (memory[d].bytes() <= limits[d]) continue;
    const std::string where = d < devices.size() ? instance.devices()[d].memory_text() : "";
    return fail(ErrorCode::out_of_memory,
                "a context of {} tokens needs {}, but only {} is available{}; use fewer tokens or a smaller model",
                options.context, memory_text(memory[d]), format_memory(limits[d]), where);
  }
  ZINC_TRY(cache, instance.backend().allocate_cache(layers, sizes));
  runner.cache_ = std::move(cache);
  ZINC_TRY(plan, instance.backend().compile(instance.model().graph, instance.weights(), *runner.cache_, bucket));
  runner.plan_ = std::move(plan);
  return runner;
}

Status ModelRunner::check_context(size_t n_tokens) const {
  if (n_tokens <= static_cast<size_t>(context_ - position_)) return ok_status();
  return fail(ErrorCode::invalid_input, "{} tokens do not fit in the context of {} tokens, {} of which are used",
              n_tokens, context_, position_);
}

Result<std::span<float>> ModelRunner::step(std::span<const TokenId> tokens, int n_rows) {
  arrays_.clear();
  arrays_.add(sequence_, position_, tokens);
  arrays_.request_logits(n_rows);
  plan_->start(arrays_.inputs());
  position_ += static_cast<int>(tokens.size());
  ZINC_TRY(output, plan_->wait());
  if (output.sampled.back() >= 0) return output.logits;
  return no_finite_logit(static_cast<uint64_t>(position_), static_cast<size_t>(model_->model().config.vocab_size));
}

Result<std::span<float>> ModelRunner::feed(std::span<const TokenId> tokens) {
  if (Status fits = check_context(tokens.size()); !fits.ok()) return fits.error();
  const size_t n_step = static_cast<size_t>(step_tokens_);
  for (; tokens.size() > n_step; tokens = tokens.subspan(n_step)) {
    ZINC_TRY(unused, step(tokens.first(n_step), 1));
  }
  return step(tokens, 1);
}

Result<std::vector<float>> ModelRunner::feed_with_all_logits(std::span<const TokenId> tokens) {
  if (Status fits = check_context(tokens.size()); !fits.ok()) return fits.error();
  std::vector<float> logits;
  while (!tokens.empty()) {
    const size_t n = std::min(tokens.size(), static_cast<size_t>(step_tokens_));
    ZINC_TRY(rows, step(tokens.first(n), static_cast<int>(n)));
    logits.insert(logits.end(), rows.begin(), rows.end());
    tokens = tokens.subspan(n);
  }
  return logits;
}

}  // namespace zinc
