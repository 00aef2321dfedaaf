#include "cli/hub_library.h"

#include <fmt/core.h>

#include <chrono>

#include "cli/model_memory.h"
#include "cli/sampling_options.h"
#include "hub/pull.h"
#include "hub/resolve.h"
#include "hub/sampling_advice.h"

namespace zinc {
namespace {

constexpr std::chrono::milliseconds kUnloadPause{20};

ApiError conflict(std::string message) { return http_error(409, message); }

// By its id in the list, and by nothing else: who asks over the network names no files of this machine.
std::optional<ModelEntry> find_listed(const HubSettings& settings, const std::string& name) {
  for (ModelEntry& entry : list_models(settings, this_machine())) {
    if (entry.id == name) return std::move(entry);
  }
  return std::nullopt;
}

bool is_address(const std::string& name) {
  const Result<Source> source = parse_source(name);
  return source.ok() && source.value().kind == SourceKind::url;
}

ApiError unknown_name(const std::string& name) {
  return bad_field("model",
                   fmt::format("there is no model '{}'; GET /models lists those there are", name.substr(0, 100)));
}

LibraryAnswer activated(const std::string& name) {
  return {.body = {{"object", "model.activation"}, {"id", name}, {"active", true}}};
}

// Where people read about a model.
std::string homepage_of(const ModelEntry& entry, const HubSettings& settings) {
  if (!has_source_prefix(entry.source)) return {};
  const Result<Source> source = parse_source(entry.source);
  if (!source.ok() || source.value().kind != SourceKind::hugging_face) return {};
  return settings.hf_endpoint + "/" + source.value().name;
}

// How the model's makers want its answers drawn; the page asks so where its user says nothing else.
json::object recommended_sampling(const GgufFile& file) {
  const SamplingAdvice advice = sampling_advice(file);
  json::object out = sampling_json(SamplingOptions().settle(advice));
  out.erase("seed");
  out["origin"] = advice.origin;
  return out;
}

}  // namespace

HubLibrary::HubLibrary(HubSettings settings, ModelList& models, Load load)
    : settings_(std::move(settings)), models_(models), load_(std::move(load)) {}

Status HubLibrary::load_now(const std::string& name, const std::string& path) {
  if (stopping_) return fail(ErrorCode::unavailable, "the server is stopping");
  ZINC_TRY(engine, load_(name, path));
  const std::shared_ptr<EngineThread> shared = std::move(engine);
  ZINC_TRY(described, shared->describe(name));
  described.engine_owner = shared;
  described.facts["recommended_sampling"] = recommended_sampling(shared->file());
  const std::lock_guard lock(mutex_);
  std::erase_if(loaded_, [&](const Loaded& other) { return other.name == name; });
  loaded_.push_back({{.name = name, .path = path}, shared});
  std::erase_if(known_, [&](const Place& other) { return other.name == name; });
  known_.push_back({.name = name, .path = path});
  models_.add(std::move(described));
  return ok_status();
}

Status HubLibrary::stop_and_save() {
  stopping_ = true;
  Status all_saved = ok_status();
  {
    const std::lock_guard lock(mutex_);
    for (const Loaded& model : loaded_) {
      if (Status saved = model.engine->stop_and_save(); !saved.ok()) all_saved = saved;
    }
  }
  stop();
  return all_saved;
}

void HubLibrary::stop() {
  stopping_ = true;
  cancels_pull_ = true;
  puller_.stop();
  loader_.stop();
  shelf_.stop();
  const std::lock_guard lock(mutex_);
  for (const Loaded& model : loaded_) {
    models_.remove(model.name);
    model.engine->stop();
  }
  for (const std::weak_ptr<EngineThread>& engine : retired_) {
    if (const std::shared_ptr<EngineThread> running = engine.lock()) running->stop();
  }
  loaded_.clear();
}

std::vector<HubLibrary::Place> HubLibrary::loaded() const {
  const std::lock_guard lock(mutex_);
  return {loaded_.begin(), loaded_.end()};
}

std::optional<HubLibrary::Place> HubLibrary::find_loaded(const std::string& name,
                                                         const std::filesystem::path& path) const {
  for (Place& model : loaded()) {
    std::error_code ignored;
    const bool is_same_file = !path.empty() && std::filesystem::equivalent(model.path, path, ignored);
    if (model.name == name || is_same_file) return std::move(model);
  }
  return std::nullopt;
}

void HubLibrary::list(Done done) {
  shelf_.post([this, done = std::move(done)] { done(list_now()); });
}

json::object HubLibrary::item(const ModelEntry& entry) const {
  const std::optional<Place> active = find_loaded(entry.id, entry.path);
  json::object out{{"id", entry.id},
                   {"object", "model"},
                   {"owned_by", "zinc"},
                   {"display_name", entry.name.empty() ? entry.id : entry.name},
                   {"homepage_url", homepage_of(entry, settings_)},
                   {"release_date", entry.released.empty() ? json::value(nullptr) : json::value(entry.released)},
                   {"family", entry.architecture},
                   {"parameters", entry.parameters},
                   {"quantization", entry.quantization},
                   {"license", entry.license},
                   {"size_bytes", entry.n_bytes},
                   {"installed", !entry.path.empty()},
                   {"managed", entry.place == ModelPlace::zinc},
                   {"active", active.has_value()},
                   {"served_as", active ? json::value(active->name) : json::value(nullptr)},
                   {"fit", fit_name(entry.fit)},
                   {"fits_gpu", entry.fits_gpu ? json::value(*entry.fits_gpu) : json::value(nullptr)},
                   {"required_bytes", entry.memory_bytes},
                   {"fit_source", entry.memory_is_exact ? "exact" : "catalog"},
                   {"status", entry.status},
                   {"thinks", entry.thinks},
                   {"is_default", entry.is_default}};
  const std::lock_guard lock(mutex_);
  out["activating"] = activating_ == entry.id;
  if (pull_.name == entry.id) out["download"] = pull_body(pull_);
  return out;
}

HubLibrary::Answer HubLibrary::list_now() {
  const MachineMemory machine = model_memory();
  json::array data;
  std::vector<Place> apart;  // files that are in no list: given by their path
  {
    const std::lock_guard lock(mutex_);
    apart = known_;
  }
  for (const ModelEntry& entry : list_models(settings_, machine)) {
    json::object row = item(entry);
    const json::string* name = row["served_as"].if_string();
    std::erase_if(apart, [&](const Place& model) {
      return model.path == entry.path || (name && model.name == std::string_view(*name));
    });
    data.push_back(std::move(row));
  }
  for (const Place& model : apart) {
    const Result<ModelEntry> shown = show_model(settings_, model.path, machine);
    if (!shown.ok()) continue;
    ModelEntry entry = shown.value();
    entry.id = model.name;
    entry.place = ModelPlace::path;
    data.push_back(item(entry));
  }
  json::object body{
      {"object", "list"}, {"memory_bytes", machine.n_bytes}, {"memory_available_bytes", machine.n_available}};
  {
    const std::lock_guard lock(mutex_);
    body["activating"] = activating_;
    body["download"] = pull_.name.empty() ? json::value(nullptr) : json::value(pull_body(pull_));
  }
  body["data"] = std::move(data);
  return LibraryAnswer{.body = std::move(body)};
}

std::string_view HubLibrary::state_name(PullState state) {
  static constexpr std::string_view kNames[] = {"idle", "downloading", "verifying", "installed", "cancelled", "failed"};
  return kNames[static_cast<size_t>(state)];
}

json::object HubLibrary::pull_body(const Pull& pull) const {
  json::object out{{"object", "model.pull"},
                   {"id", pull.name},
                   {"state", state_name(pull.state)},
                   {"downloaded_bytes", pull.n_done},
                   {"download_total_bytes", pull.n_bytes}};
  if (!pull.error.empty()) out["error"] = pull.error;
  return out;
}

void HubLibrary::pull(std::string name, Done done) {
  shelf_.post([this, name = std::move(name), done = std::move(done)] {
    const std::optional<ModelEntry> listed = find_listed(settings_, name);
    if (!listed && !has_source_prefix(name)) return done(unknown_name(name));
    if (!listed && refuses_addresses_ && is_address(name)) {
      return done(http_error(403,
                             "this server can be reached from other machines, and fetches no address they name; on "
                             "its own machine 'zinc pull' does"));
    }
    const Result<std::optional<FoundModel>> found = find_model(settings_, name);
    if (!found.ok()) return done(api_error(found.error()));
    if (found.value()) {
      return done(LibraryAnswer{.body = {{"object", "model.pull"}, {"id", name}, {"state", "installed"}}});
    }
    LibraryAnswer answer{.body = {}, .status = 202};
    {
      const std::lock_guard lock(mutex_);
      if (pull_.is_running() && pull_.name != name) {
        return done(conflict(fmt::format("'{}' is being fetched; wait for it or cancel it", pull_.name)));
      }
      if (!pull_.is_running()) {
        cancels_pull_ = false;
        pull_ = Pull();
        pull_.name = name;
        pull_.state = PullState::downloading;
        puller_.post([this, name] { run_pull(name); });
      }
      answer.body = pull_body(pull_);
    }
    done(std::move(answer));
  });
}

void HubLibrary::run_pull(const std::string& name) {
  DownloadHooks hooks;
  hooks.progress = [this](const DownloadProgress& progress) {
    const std::lock_guard lock(mutex_);
    pull_.state = progress.phase == DownloadPhase::checking ? PullState::verifying : PullState::downloading;
    pull_.n_bytes = progress.n_bytes;
    pull_.n_done = progress.n_done;
  };
  hooks.cancelled = [this] { return cancels_pull_.load(); };
  const Result<std::filesystem::path> path = resolve_model(settings_, name, hooks);
  const std::lock_guard lock(mutex_);
  pull_.state = path.ok() ? PullState::installed : cancels_pull_ ? PullState::cancelled : PullState::failed;
  if (pull_.state == PullState::failed) pull_.error = path.error().message;
}

void HubLibrary::cancel_pull(std::string name, Done done) {
  shelf_.post([this, name = std::move(name), done = std::move(done)] {
    {
      const std::lock_guard lock(mutex_);
      if (!pull_.is_running() || pull_.name != name) {
        return done(http_error(404, fmt::format("'{}' is not being fetched", name)));
      }
      cancels_pull_ = true;
    }
    // The download looks several times a second.
    while (!stopping_) {
      {
        const std::lock_guard lock(mutex_);
        if (!pull_.is_running()) return done(LibraryAnswer{.body = pull_body(pull_)});
      }
      std::this_thread::sleep_for(kUnloadPause);
    }
  });
}

void HubLibrary::post_loading(std::string name, Done done, std::function<Answer(const std::string& name)> load) {
  loader_.post([this, name = std::move(name), done = std::move(done), load = std::move(load)] {
    {
      const std::lock_guard lock(mutex_);
      activating_ = name;
    }
    Answer answer = load(name);
    {
      const std::lock_guard lock(mutex_);
      activating_.clear();
    }
    done(std::move(answer));
  });
}

void HubLibrary::activate(std::string name, bool beside, Done done) {
  post_loading(std::move(name), std::move(done),
               [this, beside](const std::string& wanted) { return activate_now(wanted, beside); });
}

void HubLibrary::bring(std::string name, Done done) {
  // A name that nothing has is said at once, whatever is being loaded.
  shelf_.post([this, name = std::move(name), done = std::move(done)] {
    const std::variant<ModelEntry, ApiError> found = find_installed(name);
    if (const ApiError* error = std::get_if<ApiError>(&found)) return done(no_such_model(error->message));
    post_loading(name, done, [this](const std::string& wanted) { return bring_now(wanted); });
  });
}

std::optional<HubLibrary::Place> HubLibrary::find_known(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  for (const Place& place : known_) {
    if (place.name == name) return place;
  }
  return std::nullopt;
}

std::variant<ModelEntry, ApiError> HubLibrary::find_installed(const std::string& name) const {
  if (const std::optional<Place> known = find_known(name)) {
    Result<ModelEntry> shown = show_model(settings_, known->path, model_memory());
    if (!shown.ok()) return bad_field("model", shown.error().message);
    return std::move(shown.value());
  }
  std::optional<ModelEntry> listed = find_listed(settings_, name);
  if (!listed) return unknown_name(name);
  if (listed->path.empty()) return bad_field("model", fmt::format("'{}' is not on this machine; pull it first", name));
  return std::move(*listed);
}

HubLibrary::Answer HubLibrary::activate_now(const std::string& name, bool beside) {
  const std::variant<ModelEntry, ApiError> found = find_installed(name);
  if (const ApiError* error = std::get_if<ApiError>(&found)) return *error;
  const ModelEntry& entry = std::get<ModelEntry>(found);
  if (const std::optional<Place> there = find_loaded(name, entry.path)) {
    for (const Place& other : loaded()) {
      if (!beside && other.name != there->name) unload(other.name);
    }
    return activated(there->name);
  }
  Answer answer = load_file(name, entry, beside);
  if (std::holds_alternative<LibraryAnswer>(answer) && ModelStore(settings_).find(name)) {
    // What was chosen last is what the next start begins with.
    const Status kept = ModelStore(settings_).set_default_model(name);
    if (!kept.ok()) return api_error(kept.error());
  }
  return answer;
}

// As activating, but no choice of whoever runs the server: what is loaded already may stay, and the next start begins
// with what was chosen.
HubLibrary::Answer HubLibrary::bring_now(const std::string& name) {
  const std::variant<ModelEntry, ApiError> found = find_installed(name);
  if (const ApiError* error = std::get_if<ApiError>(&found)) return no_such_model(error->message);
  const ModelEntry& entry = std::get<ModelEntry>(found);
  if (const std::optional<Place> there = find_loaded(name, entry.path)) return activated(there->name);
  return load_file(name, entry, /*beside=*/false);
}

HubLibrary::Answer HubLibrary::load_file(const std::string& name, const ModelEntry& entry, bool beside) {
  if (entry.fit == Fit::too_large) {
    return bad_field("model",
                     fmt::format("'{}' needs {}, more than this machine has", name, human_bytes(entry.memory_bytes)));
  }
  Answer answer = load_in_place(name, entry.path.string(), beside);
  if (std::get_if<ApiError>(&answer)) return answer;
  return activated(name);
}

// Where memory holds both, the new one is there before the others go; else they go first, and come back if it fails.
HubLibrary::Answer HubLibrary::load_in_place(const std::string& name, const std::string& path, bool beside) {
  const std::vector<Place> others = loaded();
  const Result<ModelEntry> shown = show_model(settings_, path, model_memory());
  const bool fits_beside = shown.ok() && shown.value().fit == Fit::fits;
  if (beside && !fits_beside) {
    return conflict(fmt::format("'{}' does not fit beside what is loaded; activate it alone", name));
  }
  if (!fits_beside) {
    for (const Place& other : others) unload(other.name);
  }
  const Status done = load_now(name, path);
  if (!done.ok() && !fits_beside) {
    for (const Place& other : others) {
      if (Status back = load_now(other.name, other.path); !back.ok()) return api_error(back.error());
    }
  }
  if (!done.ok()) return api_error(done.error());
  for (const Place& other : others) {
    if (fits_beside && !beside) unload(other.name);
  }
  return LibraryAnswer{};
}

void HubLibrary::unload(const std::string& name) {
  std::shared_ptr<EngineThread> engine;  // the last to let go ends it, which takes time: this thread, not who answers
  {
    const std::lock_guard lock(mutex_);
    for (const Loaded& model : loaded_) {
      if (model.name == name) engine = model.engine;
    }
    std::erase_if(retired_, [](const std::weak_ptr<EngineThread>& old) { return old.expired(); });
    retired_.push_back(engine);
    std::erase_if(loaded_, [&](const Loaded& model) { return model.name == name; });
  }
  models_.remove(name);
  while (engine.use_count() > 1 && !stopping_) std::this_thread::sleep_for(kUnloadPause);
}

void HubLibrary::remove(std::string name, bool force, Done done) {
  loader_.post([this, name = std::move(name), force, done = std::move(done)] { done(remove_now(name, force)); });
}

HubLibrary::Answer HubLibrary::remove_now(const std::string& name, bool force) {
  const ModelStore store(settings_);
  const std::optional<InstalledModel> model = is_plain_file_name(name) ? store.find(name) : std::nullopt;
  if (!model) return http_error(404, fmt::format("'{}' is no model that zinc has fetched", name.substr(0, 100)));
  const std::optional<Place> active = find_loaded(name, model->path());
  if (active && !force) return conflict(fmt::format("'{}' is loaded; \"force\": true unloads it first", name));
  if (active) unload(active->name);
  const DownloadHooks hooks{.cancelled = [this] { return stopping_.load(); }};
  const Result<FileLock> lock = store.lock(name, hooks);
  if (!lock.ok()) return api_error(lock.error());
  const Result<uint64_t> freed = store.remove(name);
  if (!freed.ok()) return api_error(freed.error());
  const bool was_default = store.default_model() == name;
  if (was_default) {
    if (Status cleared = store.set_default_model(""); !cleared.ok()) return api_error(cleared.error());
  }
  return LibraryAnswer{.body = {{"object", "model.remove"},
                                {"id", name},
                                {"removed", true},
                                {"unloaded_from_gpu", active.has_value()},
                                {"cleared_active_selection", was_default},
                                {"freed_bytes", freed.value()}}};
}

}  // namespace zinc
