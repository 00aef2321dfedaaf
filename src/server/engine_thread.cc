#include "server/engine_thread.h"

namespace zinc {

EngineThread::EngineThread(std::unique_ptr<Engine> engine)
    : engine_(std::move(engine)), thread_([this](std::stop_token stop) { engine_->run(stop); }) {}

EngineThread::~EngineThread() { stop(); }

void EngineThread::stop() {
  thread_.request_stop();
  if (thread_.joinable()) thread_.join();
  engine_.reset();
}

Result<RequestId> EngineThread::submit(Request request) {
  if (!engine_) return fail(ErrorCode::unavailable, "this model has been unloaded");
  return engine_->submit(std::move(request));
}

void EngineThread::cancel(RequestId id) {
  if (engine_) engine_->cancel(id);
}

EngineStats EngineThread::stats() const { return engine_ ? engine_->stats() : EngineStats(); }

Status EngineThread::stop_and_save() {
  thread_.request_stop();
  if (thread_.joinable()) thread_.join();
  Status saved = engine_ ? engine_->save_cache() : ok_status();
  engine_.reset();
  return saved;
}

Result<ServedModel> EngineThread::describe(std::string name) {
  const ModelInstance& model = engine_->model();
  ZINC_TRY(prompt, ChatPrompt::load(model.file(), engine_->tokenizer(), model.chat_template()));
  const std::string_view architecture = model.model().architecture->gguf_name;
  const ToolFormat& format = detect_tool_format(prompt.chat_template().source(), architecture);
  json::object facts{{"architecture", architecture},
                     {"backend", model.backend_name()},
                     {"kv_format", model.kv_format().name},
                     {"trained_context", model.model().config.max_context}};
  return ServedModel{.name = std::move(name),
                     .tokenizer = engine_->tokenizer(),
                     .prompt = std::move(prompt),
                     .tool_format = &format,
                     .constraints = std::make_shared<ConstraintCache>(engine_->tokenizer()),
                     .limits = engine_->limits(),
                     .facts = std::move(facts),
                     .engine = this};
}

}  // namespace zinc
