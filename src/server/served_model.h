// A model as the server sees it: its name, what turns messages into tokens and back, and a narrow port to the engine
// that runs it. Immutable; any thread may use it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "engine/chat_prompt.h"
#include "engine/engine.h"
#include "text/tool_format.h"

namespace zinc {

// What of an Engine the server calls; its contract is engine/engine.h.
class EnginePort {
 public:
  virtual ~EnginePort() = default;
  virtual Result<RequestId> submit(Request request) = 0;
  virtual void cancel(RequestId id) = 0;
  virtual EngineStats stats() const = 0;
};

struct ServedModel {
  std::string name;
  Tokenizer tokenizer;
  ChatPrompt prompt;
  const ToolFormat* tool_format;
  EngineLimits limits;
  json::object facts;  // for people: file, architecture, backend
  EnginePort* engine;
};

// The models of a server, in the order they were named.
class ModelList {
 public:
  void add(ServedModel model) { models_.push_back(std::make_unique<ServedModel>(std::move(model))); }
  // An empty name means the only model. nullptr: unknown, or not the only one.
  const ServedModel* find(std::string_view name) const;
  std::string names() const;  // "a, b"

  auto begin() const { return models_.begin(); }
  auto end() const { return models_.end(); }
  size_t size() const { return models_.size(); }

 private:
  std::vector<std::unique_ptr<ServedModel>> models_;
};

}  // namespace zinc
