// Model management as the server sees it: list, download, load, remove. Implemented outside the server; callbacks run
// later, on any thread.
#pragma once

#include <functional>
#include <string>
#include <variant>

#include "base/json.h"
#include "server/api_error.h"

namespace zinc {

struct LibraryResponse {
  json::object body;
  int status = 200;
};

class ModelLibrary {
 public:
  using Done = std::function<void(std::variant<LibraryResponse, ApiError>)>;

  virtual ~ModelLibrary() = default;
  virtual void list(Done done) = 0;
  // Starts a download, or reports its progress: 202 while it is running, 409 while another model is being downloaded.
  virtual void pull(std::string name, Done done) = 0;
  virtual void cancel_pull(std::string name, Done done) = 0;
  // Loads an installed model; other models are unloaded unless `keep_others` is set.
  virtual void activate(std::string name, bool keep_others, Done done) = 0;
  // Loads the installed model that a request names, if it is not loaded yet; other models are unloaded to make space.
  // `id` of the response is the name it is served under. 404: no such model.
  virtual void ensure_loaded(std::string name, Done done) = 0;
  // Unloads a loaded model; its file stays. Responds once its running requests have ended. 404: it is not loaded,
  // or with the code kModelNotFound: there is no such installed model.
  virtual void unload(std::string name, Done done) = 0;
  // 409 if it is loaded, unless `force` unloads it first.
  virtual void remove(std::string name, bool force, Done done) = 0;
};

}  // namespace zinc
