#include "engine/engine_thread.h"

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

}  // namespace zinc
