// Model management as the server sees it: list, download, load, remove. Implemented outside the server; callbacks run
// later, on any thread. The server writes the results as JSON (server/model_routes.h).
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "hub/inventory.h"
#include "server/api_error.h"

namespace zinc {

struct PullStatus {
  enum class State : uint8_t { downloading, verifying, installed, cancelled, failed };
  std::string id = {};
  State state = State::downloading;
  uint64_t n_bytes = 0, n_done = 0;
  std::string error = {};  // of State::failed

  bool is_running() const { return state == State::downloading || state == State::verifying; }
};

struct ListedModel {
  ModelEntry entry;
  std::string homepage_url = {};
  std::optional<std::string> served_as = {};  // nullopt: not loaded
};

struct ModelListing {
  MemoryCapacity memory = {};
  std::vector<ListedModel> models = {};
  std::string activating = {};          // the model that is being loaded; empty: none
  std::optional<PullStatus> pull = {};  // the latest
};

struct RemovedModel {
  std::string id;
  bool was_loaded = false, was_default = false;
  uint64_t n_freed_bytes = 0;
};

class ModelLibrary {
 public:
  template <class T>
  using Done = std::function<void(const OrApiError<T>&)>;

  virtual ~ModelLibrary() = default;
  virtual void list(Done<ModelListing> done) = 0;
  // Starts a download, or reports its progress; 409 while another model is being downloaded.
  virtual void pull(std::string name, Done<PullStatus> done) = 0;
  virtual void cancel_pull(std::string name, Done<PullStatus> done) = 0;
  // Loads an installed model; other models are unloaded unless `keep_others` is set. Returns the name it is served
  // under.
  virtual void activate(std::string name, bool keep_others, Done<std::string> done) = 0;
  // Loads the installed model that a request names, if it is not loaded yet; other models are unloaded to make space.
  // Returns the name it is served under. 404: no such model.
  virtual void ensure_loaded(std::string name, Done<std::string> done) = 0;
  // Unloads a loaded model; its file stays. Returns its name once its running requests have ended. 404: it is not
  // loaded, or with the code kModelNotFound: there is no such installed model.
  virtual void unload(std::string name, Done<std::string> done) = 0;
  // 409 if it is loaded, unless `force` unloads it first.
  virtual void remove(std::string name, bool force, Done<RemovedModel> done) = 0;
};

}  // namespace zinc
