// A model as the server sees it: what conversations need, its names, and a narrow interface to the engine that runs it.
// Immutable; any thread may use it. Models come and go while the server runs: each response in progress holds a
// ModelRef, and the last reference destroys the engine.
#pragma once

#include <algorithm>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/json.h"
#include "chat/chat_model.h"
#include "engine/engine_thread.h"

namespace zinc {

// Sampling parameters for requests that leave them out; some models have different ones per thinking mode.
struct SamplingDefaults {
  SamplingParams unset, thinking, not_thinking;  // unset: the request does not switch thinking

  const SamplingParams& of(std::optional<bool> is_thinking) const {
    if (!is_thinking) return unset;
    return *is_thinking ? thinking : not_thinking;
  }
};

struct ServedModel : ChatModel {
  EnginePort* engine;
  json::object facts = {};                        // for /props: architecture, backend, KV format
  std::vector<std::string> aliases = {};          // further names of the same engine
  SamplingDefaults sampling_defaults = {};        // OpenAI's, unless set
  std::shared_ptr<EnginePort> engine_owner = {};  // nullptr: the engine outlives the server

  // The model of an engine, which must outlive it.
  static Result<ServedModel> load(EngineThread& engine, std::string name);

  bool has_name(std::string_view wanted) const {
    return name == wanted || std::ranges::find(aliases, wanted) != aliases.end();
  }
};
using ModelRef = std::shared_ptr<const ServedModel>;

// The loaded models of a server, in order of addition. Any thread.
class ModelList {
 public:
  // Replaces a model of the same name. Finds the default DRY breakers.
  void add(ServedModel model);
  ModelRef remove(std::string_view name);  // the removed model; nullptr: none
  // A list of one model under the requested name, for one request.
  static std::shared_ptr<const ModelList> of(std::string name, ModelRef model);
  // An empty name means the only model. nullptr: unknown, or several models for an empty name.
  ModelRef find(std::string_view name) const;
  std::string names() const;  // with aliases: "a, b"

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
