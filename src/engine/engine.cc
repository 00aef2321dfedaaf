#include "engine/engine.h"

#include <algorithm>

#include "base/version.h"
#include "engine/draft_model.h"
#include "engine/engine_loop.h"
#include "engine/engine_memory.h"
#include "engine/model_fingerprint.h"
#include "engine/mtp_drafter.h"
#include "engine/mtp_file_drafter.h"
#include "engine/submission_queue.h"
#include "graph/rope.h"

namespace zinc {
namespace {

Status check(const EngineOptions& options) {
  const auto check_minimum = [](std::string_view name, int value, int minimum) -> Status {
    if (value >= minimum) return ok_status();
    return fail(ErrorCode::invalid_input, "{} is {}, but must be at least {}", name, value, minimum);
  };
  if (Status s = check_minimum("max_sequences", options.max_sequences, 1); !s.ok()) return s;
  if (Status s = check_minimum("context", options.context, 0); !s.ok()) return s;
  if (Status s = check_minimum("step_tokens", options.step_tokens, 1); !s.ok()) return s;
  if (Status s = check_minimum("queue_limit", options.queue_limit, 1); !s.ok()) return s;
  if (Status s = check_minimum("checkpoint_interval", options.checkpoint_interval, 1); !s.ok()) return s;
  if (options.max_decode_slowdown > 1) return ok_status();
  return fail(ErrorCode::invalid_input, "max_decode_slowdown is {}, but must be above 1", options.max_decode_slowdown);
}

// A model without an extension may be used beyond its training context: the results are its own.
Status check_context(const ModelInstance& model, int context) {
  const RopeExtension extension = rope_extension(model.model().graph);
  if (extension.kind == RopeExtensionKind::none || context <= extension.max_context) return ok_status();
  return fail(ErrorCode::invalid_input,
              "a context of {} tokens is too long for {}: it was trained for {}, and {} reaches {}; use -c {} or less",
              context, model.file().name(), extension.context,
              extension.kind == RopeExtensionKind::yarn ? "YaRN" : "its longrope", extension.max_context,
              extension.max_context);
}

// Positions that a request may use, and the RoPE scaling for them. It is fixed when the request is submitted.
struct RequestLength {
  int max_length = 0, rope_scaling = 0;
};
RequestLength length_of(const Request& request, std::span<const int> contexts) {
  constexpr int kOutputShare = 4;  // an output without a limit gets 1 / this of the first context, at least
  const int64_t n_prompt = std::ssize(request.prompt), n_requested = request.options.max_tokens;
  const bool has_limit = request.embedding || request.options.prompt_only || n_requested > 0;
  int64_t needed = n_prompt;
  if (!request.embedding && !request.options.prompt_only) {
    needed += n_requested > 0 ? n_requested - 1 : contexts[0] / kOutputShare;  // the last output token is not fed
  }
  const int scaling = rope_scaling_for(contexts, needed);
  const int64_t context = contexts[static_cast<size_t>(scaling)];
  return {static_cast<int>(has_limit ? std::min(needed, context) : context), scaling};
}

Status add_mtp_file(ModelInstance& model, const std::filesystem::path& path) {
  if (Status added = model.add_mtp_file(path); !added.ok()) return added;
  return check_mtp_file_tokens(model);
}

// The draft model, if there is to be one. A separate MTP file is added to the model.
Result<std::optional<ModelInstance>> open_draft_model(ModelInstance& model, const SpeculationOptions& speculation) {
  if (speculation.mode == SpeculationMode::mtp) {
    if (!speculation.draft_model.empty()) {
      if (Status s = add_mtp_file(model, speculation.draft_model); !s.ok()) return s.error();
    }
    if (model.model().draft) return std::optional<ModelInstance>();
    return fail(ErrorCode::unsupported, "{} has no MTP block that drafts tokens; use --speculate {}",
                model.file().name(),
                model.model().architecture->mtp_file ? "mtp:FILE with its separate MTP file, or ngram or draft:MODEL"
                                                     : "ngram or draft:MODEL");
  }
  if (speculation.draft_model.empty()) return std::optional<ModelInstance>();
  ZINC_TRY(draft, ModelInstance::open_beside(model, speculation.draft_model));
  if (Status usable = check_draft_model(draft, model); !usable.ok()) return usable.error();
  return std::optional<ModelInstance>(std::move(draft));
}

// nullptr: no drafter that runs a model.
Result<std::unique_ptr<Drafter>> make_drafter(const ModelInstance& model, std::optional<ModelInstance> draft_model,
                                              KvCache& cache, const EngineMemory& memory,
                                              const EngineOptions& options) {
  Bucket step = largest_draft_step(options);
  if (draft_model) {
    ZINC_TRY(drafter, DraftModelDrafter::create(
                          std::move(*draft_model),
                          {.cache = memory.draft_cache, .step = step, .max_chunk_tokens = options.step_tokens}));
    return std::unique_ptr<Drafter>(std::move(drafter));
  }
  if (options.speculation.mode != SpeculationMode::mtp) return std::unique_ptr<Drafter>();
  step = with_rope_scalings(step, model.model().graph, memory.cache.context);
  if (model.mtp_file()) {
    ZINC_TRY(drafter, MtpFileDrafter::create(model, cache, step));
    return std::unique_ptr<Drafter>(std::move(drafter));
  }
  ZINC_TRY(drafter, MtpDrafter::create(model, cache, step));
  return std::unique_ptr<Drafter>(std::move(drafter));
}

}  // namespace

Engine::Engine(ModelInstance model, Tokenizer tokenizer)
    : model_(std::move(model)), tokenizer_(std::move(tokenizer)), cache_key_(Sha256::Digest{}) {}

Engine::~Engine() = default;

std::string Engine::load_prefix_cache(KvCache& cache) {
  if (cache_file_.empty()) return "";
  cache_key_ = fingerprint_of(model_, version_text());
  if (!cache_key_.ok()) return cache_key_.error().message;
  std::error_code ignored;
  if (!std::filesystem::exists(cache_file_, ignored)) return "";
  const Status loaded = cache.load(cache_file_, cache_key_.value());
  return loaded.ok() ? "" : loaded.error().message;
}

Result<std::unique_ptr<Engine>> Engine::create(ModelInstance model, EngineOptions options) {
  if (options.step_tokens == 0) options.step_tokens = model.backend_info().step_tokens;
  if (Status valid = check(options); !valid.ok()) return valid.error();
  if (Status valid = check_context(model, options.context); !valid.ok()) return valid.error();
  ZINC_TRY(tokenizer, Tokenizer::load(model.file()));
  ZINC_TRY(draft_model, open_draft_model(model, options.speculation));
  ZINC_TRY(memory, plan_engine_memory(model, model.memory_limits(), options, draft_model ? &*draft_model : nullptr));
  const CachePlan& plan = memory.cache;
  if (Status s = model.upload(); !s.ok()) return s.error();
  std::unique_ptr<Engine> engine(new Engine(std::move(model), std::move(tokenizer)));
  const ModelInstance& instance = engine->model_;
  const Graph& graph = instance.model().graph;
  ZINC_TRY(cache, KvCache::create(instance.backend(), instance.model().caches,
                                  {.sizes = plan.sizes,
                                   .max_chunk_tokens = options.step_tokens,
                                   .n_sequences = options.max_sequences,
                                   .n_draft_slots = plan.n_draft_slots}));
  Bucket bucket = with_rope_scalings(largest_step(options), graph, plan.context);
  bucket.time_kernels = options.trace.trace && options.trace.time_kernels;
  ZINC_TRY(step_plan, instance.backend().compile(graph, instance.weights(), cache->memory(), bucket));
  engine->cache_file_ = options.cache_file;
  engine->limits_ = {.context = plan.context,
                     .max_sequences = options.max_sequences,
                     .queue_limit = options.queue_limit,
                     .n_vocab = static_cast<int>(instance.model().config.vocab_size),
                     .embedding_dim = static_cast<int>(instance.model().config.dim),
                     .weight_bytes = instance.weights().device_bytes(),
                     .cache_bytes = cache->memory().device_bytes(),
                     .activation_bytes = step_plan->device_bytes(),
                     .scan_chunk_tokens = instance.scan_chunk_tokens(options.step_tokens),
                     .devices = memory.devices,
                     .rope_contexts = rope_contexts(graph, plan.context),
                     .speculation = options.speculation.mode,
                     .cache_load_error = engine->load_prefix_cache(*cache)};
  engine->submission_queue_ = std::make_unique<SubmissionQueue>(options.queue_limit, options.max_sequences);
  const int scan_chunk_tokens = engine->limits_.scan_chunk_tokens;
  const LoopOptions loop{.max_sequences = options.max_sequences,
                         .checkpoint_interval = (options.checkpoint_interval + scan_chunk_tokens - 1) /
                                                scan_chunk_tokens * scan_chunk_tokens,
                         .embedding_dim = engine->limits_.embedding_dim,
                         .n_vocab = engine->limits_.n_vocab,
                         .can_sample_on_device = instance.backend_info().can_sample_on_device,
                         .scheduler = {.step_tokens = options.step_tokens,
                                       .max_outputs = bucket.max_outputs,
                                       .max_decode_slowdown = options.max_decode_slowdown,
                                       .scan_chunk_tokens = scan_chunk_tokens,
                                       .tail_chunk_tokens = instance.tail_chunk_tokens(options.step_tokens)},
                         .trace = options.trace.trace ? std::make_shared<EngineTrace>(options.trace, graph) : nullptr};
  ZINC_TRY(drafter, make_drafter(instance, std::move(draft_model), *cache, memory, options));
  if (options.speculation.replace_drafter) drafter = options.speculation.replace_drafter(std::move(drafter));
  auto speculation = std::make_unique<Speculation>(options.speculation, std::move(drafter), bucket.max_outputs);
  engine->loop_ = std::make_unique<EngineLoop>(*engine->submission_queue_, std::move(cache), std::move(step_plan), loop,
                                               std::move(speculation));
  return engine;
}

Result<RequestId> Engine::submit(Request request) {
  ZINC_CHECK(request.sink != nullptr);
  const std::vector<TokenId>& prompt = request.prompt;
  if (prompt.empty()) return fail(ErrorCode::invalid_input, "the prompt is empty");
  const size_t context = static_cast<size_t>(limits_.context);
  if (prompt.size() > context) {
    return fail(
        ErrorCode::context_exceeded,
        "prompt is too long: {} tokens > {} maximum: this model's maximum context length is {} tokens; shorten the "
        "prompt or serve the model with a larger context",
        prompt.size(), context, context);
  }
  const auto is_unknown = [&](TokenId id) { return id < 0 || id >= limits_.n_vocab; };
  if (const auto unknown = std::ranges::find_if(prompt, is_unknown); unknown != prompt.end()) {
    return fail(ErrorCode::invalid_input, "token {} of the prompt is {}, outside the vocabulary (0 to {})",
                unknown - prompt.begin(), *unknown, limits_.n_vocab - 1);
  }
  if (std::ranges::any_of(request.options.stop_tokens, is_unknown)) {
    return fail(ErrorCode::invalid_input, "a stop token is outside the vocabulary (0 to {})", limits_.n_vocab - 1);
  }
  if (std::ranges::any_of(request.prediction, is_unknown)) {
    return fail(ErrorCode::invalid_input, "the predicted output has a token outside the vocabulary");
  }
  const SpeculationMode mode = request.speculation.value_or(SpeculationMode::automatic);
  const bool needs_drafter = mode == SpeculationMode::mtp || mode == SpeculationMode::draft;
  const bool is_off = mode == SpeculationMode::ngram && limits_.speculation == SpeculationMode::off;
  if ((needs_drafter && mode != limits_.speculation) || is_off) {
    return fail(ErrorCode::invalid_input,
                "speculative decoding with '{}' is not available: the model was loaded with '{}'",
                speculation_mode_name(mode), speculation_mode_name(limits_.speculation));
  }
  if (std::ranges::any_of(request.options.thinking.forced_end, is_unknown)) {
    return fail(ErrorCode::invalid_input, "the forced end of reasoning has a token outside the vocabulary");
  }
  if (Status valid = validate(request.options.sampling, limits_.n_vocab); !valid.ok()) return valid.error();
  const RequestLength length = length_of(request, limits_.rope_contexts);
  request.cache_namespace = with_rope_scaling(request.cache_namespace, length.rope_scaling);
  auto live = std::make_unique<RequestState>(std::move(request), tokenizer_);
  live->max_length = length.max_length;
  live->rope_scaling = length.rope_scaling;
  return submission_queue_->put(std::move(live));
}

void Engine::cancel(RequestId id) { submission_queue_->cancel(id); }
void Engine::drain() { submission_queue_->drain(); }
bool Engine::drained() const { return submission_queue_->drained(); }
EngineStats Engine::stats() const { return loop_->stats(); }
bool Engine::step() { return loop_->step(); }
Status Engine::wait_until_prepared() { return loop_->wait_until_prepared(); }

Status Engine::save_cache() {
  ZINC_CHECK(!cache_file_.empty());
  if (!cache_key_.ok()) return cache_key_.error();
  loop_->finish_step();  // releases the cache of requests that have ended
  return loop_->cache().save(cache_file_, cache_key_.value());
}

void Engine::run(std::stop_token stop) {
  while (!stop.stop_requested()) {
    if (!loop_->step()) submission_queue_->wait(stop);
  }
}

}  // namespace zinc
