#include "engine/engine.h"

#include <algorithm>

#include "base/version.h"
#include "engine/engine_loop.h"
#include "engine/engine_memory.h"
#include "engine/inbox.h"
#include "engine/model_fingerprint.h"

namespace zinc {
namespace {

Status check(const EngineOptions& options) {
  const auto check_one = [](std::string_view name, int value, int least) -> Status {
    if (value >= least) return ok_status();
    return fail(ErrorCode::invalid_input, "{} is {}, but must be at least {}", name, value, least);
  };
  if (Status s = check_one("max_sequences", options.max_sequences, 1); !s.ok()) return s;
  if (Status s = check_one("context", options.context, 0); !s.ok()) return s;
  if (Status s = check_one("step_tokens", options.step_tokens, 1); !s.ok()) return s;
  if (Status s = check_one("queue_limit", options.queue_limit, 1); !s.ok()) return s;
  if (Status s = check_one("state_interval", options.state_interval, 1); !s.ok()) return s;
  if (options.longest_gap > 1) return ok_status();
  return fail(ErrorCode::invalid_input, "longest_gap is {}, but must be above 1", options.longest_gap);
}

}  // namespace

Engine::Engine(ModelInstance model, Tokenizer tokenizer)
    : model_(std::move(model)), tokenizer_(std::move(tokenizer)), cache_key_(Sha256::Digest{}) {}

Engine::~Engine() = default;

std::string Engine::take_cache(KvCache& cache) {
  if (cache_file_.empty()) return "";
  cache_key_ = fingerprint_of(model_, version_text());
  if (!cache_key_.ok()) return cache_key_.error().message;
  std::error_code ignored;
  if (!std::filesystem::exists(cache_file_, ignored)) return "";
  const Status loaded = cache.load(cache_file_, cache_key_.value());
  return loaded.ok() ? "" : loaded.error().message;
}

Result<std::unique_ptr<Engine>> Engine::create(ModelInstance model, EngineOptions options) {
  if (options.step_tokens == 0) {
    ZINC_TRY(backend, find_backend(model.backend_name()));
    options.step_tokens = backend->step_tokens;
  }
  if (Status valid = check(options); !valid.ok()) return valid.error();
  ZINC_TRY(tokenizer, Tokenizer::load(model.file()));
  const size_t weight_bytes =
      std::max(model.file().file_bytes(), model.weights().device_bytes());  // mapped pages go back
  ZINC_TRY(memory, plan_engine_memory(model.model(), model.kv_format(), weight_bytes, model.memory_limit(), options));
  const CachePlan& plan = memory.cache;
  std::unique_ptr<Engine> engine(new Engine(std::move(model), std::move(tokenizer)));
  const ModelInstance& instance = engine->model_;
  const Graph& graph = instance.model().graph;
  ZINC_TRY(cache,
           KvCache::create(
               instance.backend(), instance.model().caches,
               {.sizes = plan.sizes, .max_run_tokens = options.step_tokens, .n_sequences = options.max_sequences}));
  std::vector<StepPlan> plans;
  for (const int size : step_sizes(options)) {
    ZINC_TRY(compiled, instance.backend().compile(graph, instance.weights(), cache->memory(),
                                                  bucket_of(size, options.max_sequences)));
    plans.push_back({size, std::move(compiled)});
  }
  engine->cache_file_ = options.cache_file;
  engine->limits_ = {.context = plan.context,
                     .max_sequences = options.max_sequences,
                     .queue_limit = options.queue_limit,
                     .n_vocab = static_cast<int>(instance.model().config.vocab_size),
                     .embedding_dim = static_cast<int>(instance.model().config.dim),
                     .weight_bytes = instance.file().file_bytes(),
                     .cache_bytes = cache->total_bytes(),
                     .cache_note = engine->take_cache(*cache)};
  engine->inbox_ = std::make_unique<Inbox>(options.queue_limit, options.max_sequences);
  const LoopOptions loop{.max_sequences = options.max_sequences,
                         .state_interval = options.state_interval,
                         .embedding_dim = engine->limits_.embedding_dim,
                         .n_vocab = engine->limits_.n_vocab,
                         .draws_tokens = instance.backend_info().draws_tokens,
                         .scheduler = {.step_tokens = options.step_tokens, .longest_gap = options.longest_gap}};
  engine->loop_ = std::make_unique<EngineLoop>(*engine->inbox_, std::move(cache), std::move(plans), loop);
  return engine;
}

Result<RequestId> Engine::submit(Request request) {
  ZINC_CHECK(request.sink != nullptr);
  const std::vector<TokenId>& prompt = request.prompt;
  if (prompt.empty()) return fail(ErrorCode::invalid_input, "the prompt is empty: there is nothing to continue");
  const size_t context = static_cast<size_t>(limits_.context);
  if (prompt.size() > context) {
    return fail(ErrorCode::context_exceeded,
                "the prompt has {} tokens, but the context holds {}; shorten it or serve the model with a larger one",
                prompt.size(), context);
  }
  const auto is_unknown = [&](TokenId id) { return id < 0 || id >= limits_.n_vocab; };
  if (const auto unknown = std::ranges::find_if(prompt, is_unknown); unknown != prompt.end()) {
    return fail(ErrorCode::invalid_input, "token {} of the prompt is {}, but the vocabulary ends at {}",
                unknown - prompt.begin(), *unknown, limits_.n_vocab - 1);
  }
  if (std::ranges::any_of(request.answer.thinking.when_out, is_unknown)) {
    return fail(ErrorCode::invalid_input, "the text that ends a thought has a token outside the vocabulary");
  }
  if (Status valid = validate(request.answer.sampling, limits_.n_vocab); !valid.ok()) return valid.error();
  const size_t n_asked = static_cast<size_t>(std::max(0, request.answer.max_tokens));
  size_t length = context;  // the last token of an answer needs no position
  if (n_asked > 0) length = std::min(length, prompt.size() + n_asked - 1);
  if (request.embedding) length = prompt.size();
  auto live = std::make_unique<LiveRequest>(std::move(request), tokenizer_);
  live->max_length = static_cast<int>(length);
  return inbox_->put(std::move(live));
}

void Engine::cancel(RequestId id) { inbox_->cancel(id); }
void Engine::drain() { inbox_->drain(); }
bool Engine::drained() const { return inbox_->drained(); }
EngineStats Engine::stats() const { return loop_->stats(); }
bool Engine::step() { return loop_->step(); }

Status Engine::save_cache() {
  ZINC_CHECK(!cache_file_.empty());
  if (!cache_key_.ok()) return cache_key_.error();
  loop_->finish_step();  // what a request that is over still holds comes back then
  return loop_->cache().save(cache_file_, cache_key_.value());
}

void Engine::run(std::stop_token stop) {
  while (!stop.stop_requested()) {
    if (!loop_->step()) inbox_->wait(stop);
  }
}

}  // namespace zinc
