// The models of this machine, as the server manages them for the page: which there are and whether they fit, fetching,
// loading, removing. What does it lies outside of the server; answers come later, on any thread.
#pragma once

#include <functional>
#include <string>
#include <variant>

#include "base/json.h"
#include "server/api_error.h"

namespace zinc {

struct LibraryAnswer {
  json::object body;
  int status = 200;
};

class ModelLibrary {
 public:
  using Done = std::function<void(std::variant<LibraryAnswer, ApiError>)>;

  virtual ~ModelLibrary() = default;
  virtual void list(Done done) = 0;
  // Begins to fetch, or says how far it is: 202 while it is under way, 409 while another model is being fetched.
  virtual void pull(std::string name, Done done) = 0;
  virtual void cancel_pull(std::string name, Done done) = 0;
  // Loads an installed model; others make room for it unless `beside` them there is enough.
  virtual void activate(std::string name, bool beside, Done done) = 0;
  // Loads a model of this machine that a request names, where it is not loaded yet; the others make room. `id` of the
  // answer is what it is served as. 404: there is none of this name.
  virtual void bring(std::string name, Done done) = 0;
  // 409 for one that is loaded, unless `force` unloads it first.
  virtual void remove(std::string name, bool force, Done done) = 0;
};

}  // namespace zinc
