// A model as the server sees it: its name, what turns messages into tokens and back, and a narrow port to the engine
// that runs it. Immutable; any thread may use it. Models come and go while the server runs: whoever answers with one
// holds a ModelRef, and the last to let go ends its engine.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/json.h"
#include "constrain/constraint_cache.h"
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
  std::shared_ptr<ConstraintCache> constraints;
  EngineLimits limits;
  json::object facts;  // for people: file, architecture, backend
  EnginePort* engine;
  std::shared_ptr<EnginePort> engine_owner = {};  // empty: the engine outlives the server
  // Of the breakers that hold where a request names none; set by ModelList::add(), since the search takes milliseconds.
  std::shared_ptr<const TokenSet> default_dry_breakers = {};
};
using ModelRef = std::shared_ptr<const ServedModel>;

// The models of a server, in the order they were named. Any thread.
class ModelList {
 public:
  void add(ServedModel model);             // in place of one of the same name
  ModelRef remove(std::string_view name);  // what was removed; nullptr: there was none
  // One model under the name it was asked for by, for as long as somebody answers with it.
  static std::shared_ptr<const ModelList> of(std::string name, ModelRef model);
  // An empty name means the only model. nullptr: unknown, or not the only one.
  ModelRef find(std::string_view name) const;
  std::string names() const;  // "a, b"

  std::vector<ModelRef> all() const;

 private:
  struct Named {
    std::string name;
    ModelRef model;
  };
  mutable std::mutex mutex_;
  std::vector<Named> models_;
};

}  // namespace zinc
