// A model as the server sees it: its name, tokenizer and chat template, and a narrow interface to the engine that runs
// it. Immutable; any thread may use it. Models come and go while the server runs: each response in progress holds a
// ModelRef, and the last reference destroys the engine.
#pragma once

#include <algorithm>
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

// The engine functions the server calls; the contract is in engine/engine.h.
class EnginePort {
 public:
  virtual ~EnginePort() = default;
  virtual Result<RequestId> submit(Request request) = 0;
  virtual void cancel(RequestId id) = 0;
  virtual EngineStats stats() const = 0;
};

// Sampling parameters for requests that leave them out; some models have different ones per thinking mode.
struct SamplingDefaults {
  SamplingParams unset, thinking, not_thinking;  // unset: the request does not switch thinking

  const SamplingParams& of(std::optional<bool> is_thinking) const {
    if (!is_thinking) return unset;
    return *is_thinking ? thinking : not_thinking;
  }
};

struct ServedModel {
  std::string name;
  std::vector<std::string> aliases = {};  // further names of the same engine
  Tokenizer tokenizer;
  ChatPrompt prompt;
  const ToolFormat* tool_format;
  ThinkingSupport thinking = prompt.thinking_support(*tool_format);
  std::shared_ptr<ConstraintCache> constraints;
  EngineLimits limits;
  json::object facts;  // for /props: architecture, backend, KV format
  EnginePort* engine;
  SamplingDefaults sampling_defaults = {};        // OpenAI's, unless set
  std::shared_ptr<EnginePort> engine_owner = {};  // nullptr: the engine outlives the server
  // For the default DRY breakers; set by ModelList::add(), since the search takes milliseconds.
  std::shared_ptr<const TokenSet> default_dry_breakers = {};

  bool has_name(std::string_view wanted) const {
    return name == wanted || std::ranges::find(aliases, wanted) != aliases.end();
  }
};
using ModelRef = std::shared_ptr<const ServedModel>;

// The loaded models of a server, in order of addition. Any thread.
class ModelList {
 public:
  void add(ServedModel model);             // replaces a model of the same name
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
