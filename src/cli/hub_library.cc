#include "cli/hub_library.h"

#include <fmt/core.h>

#include <chrono>

#include "cli/sampling_options.h"
#include "hub/model_names.h"
#include "hub/pull.h"
#include "hub/recommended_sampling.h"
#include "hub/resolve.h"

namespace zinc {
namespace {

constexpr std::chrono::milliseconds kUnloadPause{20};

ApiError conflict(std::string message) { return http_error(409, message); }

// By its id in the list only: network clients must not name files of this machine.
std::optional<ModelEntry> find_listed(const HubSettings& settings, const std::string& name) {
  for (ModelEntry& entry : list_models(settings, host_memory())) {
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
                   fmt::format("unknown model '{}'; GET /models lists the available models", name.substr(0, 100)));
}

LibraryResponse activated(const std::string& name) {
  return {.body = {{"object", "model.activation"}, {"id", name}, {"active", true}}};
}

// The web page of a model.
std::string homepage_of(const ModelEntry& entry, const HubSettings& settings) {
  if (!has_source_prefix(entry.source)) return {};
  const Result<Source> source = parse_source(entry.source);
  if (!source.ok() || source.value().kind != SourceKind::hugging_face) return {};
  return settings.hf_endpoint + "/" + source.value().name;
}

SamplingParams sampling_for(const GgufFile& file, std::optional<bool> thinking) {
  SamplingParams out = SamplingOptions().resolve(recommended_sampling(file, thinking));
  out.seed = 0;  // each request gets its own
  return out;
}

// The recommended sampling; the web UI uses it as default.
json::object recommended_sampling_json(const GgufFile& file) {
  const RecommendedSampling recommended = recommended_sampling(file);
  json::object out = sampling_json(SamplingOptions().resolve(recommended));
  out.erase("seed");
  out["origin"] = recommended.origin;
  return out;
}

}  // namespace

HubLibrary::HubLibrary(HubSettings settings, ModelList& models, Memory memory, Load load)
    : settings_(std::move(settings)), models_(models), memory_(std::move(memory)), load_(std::move(load)) {}

Status HubLibrary::load_now(const std::string& name, const std::string& path) {
  if (stopping_) return fail(ErrorCode::unavailable, "the server is shutting down; retry later");
  ZINC_TRY(engine, load_(name, path));
  const std::shared_ptr<EngineThread> shared = std::move(engine);
  ZINC_TRY(described, ServedModel::load(*shared, name));
  described.engine_owner = shared;
  described.facts["file"] = std::filesystem::path(path).filename().string();
  described.facts["recommended_sampling"] = recommended_sampling_json(shared->model().file());
  KnownModel known = find_known(name).value_or(KnownModel{.name = name, .path = path});
  known.path = path;
  described.aliases = known.aliases;
  if (recommends_sampling_) {
    const GgufFile& file = shared->model().file();
    described.sampling_defaults = {.unset = sampling_for(file, {}),
                                   .thinking = sampling_for(file, true),
                                   .not_thinking = sampling_for(file, false)};
  }
  const std::lock_guard lock(mutex_);
  std::erase_if(loaded_, [&](const LoadedEngine& other) { return other.name == name; });
  loaded_.push_back({known, shared});
  std::erase_if(known_, [&](const KnownModel& other) { return other.name == name; });
  known_.push_back(std::move(known));
  models_.add(std::move(described));
  return ok_status();
}

void HubLibrary::load_at_start(std::string name, std::string path, std::vector<std::string> aliases,
                               std::function<void(Status)> done) {
  {
    const std::lock_guard lock(mutex_);
    known_.push_back({.name = name, .path = path, .aliases = std::move(aliases)});
  }
  loader_thread_.post([this, name = std::move(name), path = std::move(path), done = std::move(done)] {
    set_activating(name);
    Status loaded = load_now(name, path);
    set_activating("");
    done(std::move(loaded));
  });
}

void HubLibrary::set_activating(const std::string& name) {
  const std::lock_guard lock(mutex_);
  activating_ = name;
}

Status HubLibrary::stop_and_save() {
  stopping_ = true;
  Status all_saved = ok_status();
  {
    const std::lock_guard lock(mutex_);
    for (const LoadedEngine& model : loaded_) {
      if (Status saved = model.engine->stop_and_save(); !saved.ok()) all_saved = saved;
    }
  }
  stop();
  return all_saved;
}

void HubLibrary::stop() {
  stopping_ = true;
  cancels_pull_ = true;
  download_thread_.stop();
  loader_thread_.stop();
  catalog_thread_.stop();
  const std::lock_guard lock(mutex_);
  for (const LoadedEngine& model : loaded_) {
    models_.remove(model.name);
    model.engine->stop();
  }
  for (const std::weak_ptr<EngineThread>& engine : retired_) {
    if (const std::shared_ptr<EngineThread> running = engine.lock()) running->stop();
  }
  loaded_.clear();
}

std::vector<HubLibrary::KnownModel> HubLibrary::loaded() const {
  const std::lock_guard lock(mutex_);
  return {loaded_.begin(), loaded_.end()};
}

std::optional<HubLibrary::KnownModel> HubLibrary::find_loaded(const std::string& name,
                                                              const std::filesystem::path& path) const {
  for (KnownModel& model : loaded()) {
    std::error_code ignored;
    const bool is_same_file = !path.empty() && std::filesystem::equivalent(model.path, path, ignored);
    if (model.has_name(name) || is_same_file) return std::move(model);
  }
  return std::nullopt;
}

void HubLibrary::list(Done done) {
  catalog_thread_.post([this, done = std::move(done)] { done(list_now()); });
}

json::object HubLibrary::item(const ModelEntry& entry) const {
  const std::optional<KnownModel> active = find_loaded(entry.id, entry.path);
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
                   {"sha256", entry.sha256},
                   {"installed", !entry.path.empty()},
                   {"managed", entry.location == ModelLocation::zinc},
                   {"active", active.has_value()},
                   {"served_as", active ? json::value(active->name) : json::value(nullptr)},
                   {"fit", fit_name(entry.fit)},
                   {"fits_gpu", entry.fits_gpu ? json::value(*entry.fits_gpu) : json::value(nullptr)},
                   {"required_bytes", entry.memory_bytes},
                   {"fit_source", entry.memory_is_exact ? "exact" : "catalog"},
                   {"status", entry.status},
                   {"thinks", entry.thinks},
                   {"recommended_for_chat", entry.is_recommended},
                   {"is_default", entry.is_default}};
  const std::lock_guard lock(mutex_);
  out["activating"] = activating_ == entry.id;
  if (pull_.name == entry.id) out["download"] = pull_body(pull_);
  return out;
}

HubLibrary::Response HubLibrary::list_now() {
  const MemoryCapacity memory = memory_();
  json::array data;
  std::vector<KnownModel> unlisted;  // loaded by path
  {
    const std::lock_guard lock(mutex_);
    unlisted = known_;
  }
  for (const ModelEntry& entry : list_models(settings_, memory)) {
    json::object row = item(entry);
    const json::string* name = row["served_as"].if_string();
    std::erase_if(unlisted, [&](const KnownModel& model) {
      return model.path == entry.path || (name && model.name == std::string_view(*name));
    });
    data.push_back(std::move(row));
  }
  for (const KnownModel& model : unlisted) {
    const Result<ModelEntry> shown = show_model(settings_, model.path, memory);
    if (!shown.ok()) continue;
    ModelEntry entry = shown.value();
    entry.id = model.name;
    entry.location = ModelLocation::path;
    data.push_back(item(entry));
  }
  json::object body{
      {"object", "list"}, {"memory_bytes", memory.n_bytes}, {"memory_available_bytes", memory.n_available}};
  {
    const std::lock_guard lock(mutex_);
    body["activating"] = activating_;
    body["download"] = pull_.name.empty() ? json::value(nullptr) : json::value(pull_body(pull_));
  }
  body["data"] = std::move(data);
  return LibraryResponse{.body = std::move(body)};
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
  catalog_thread_.post([this, name = std::move(name), done = std::move(done)] {
    const std::optional<ModelEntry> listed = find_listed(settings_, name);
    if (!listed && !has_source_prefix(name)) return done(unknown_name(name));
    if (!listed && forbids_url_pulls_ && is_address(name)) {
      return done(http_error(403,
                             "this server is reachable from other machines and does not download from URLs that "
                             "clients supply; run 'zinc pull' on the server instead"));
    }
    const Result<std::optional<FoundModel>> found = find_model(settings_, name);
    if (!found.ok()) return done(api_error(found.error()));
    if (found.value()) {
      return done(LibraryResponse{.body = {{"object", "model.pull"}, {"id", name}, {"state", "installed"}}});
    }
    LibraryResponse response{.body = {}, .status = 202};
    {
      const std::lock_guard lock(mutex_);
      if (pull_.is_running() && pull_.name != name) {
        return done(conflict(fmt::format("'{}' is being downloaded; wait for it or cancel it", pull_.name)));
      }
      if (!pull_.is_running()) {
        cancels_pull_ = false;
        pull_ = Pull();
        pull_.name = name;
        pull_.state = PullState::downloading;
        download_thread_.post([this, name] { run_pull(name); });
      }
      response.body = pull_body(pull_);
    }
    done(std::move(response));
  });
}

void HubLibrary::run_pull(const std::string& name) {
  DownloadHooks hooks;
  hooks.progress = [this](const DownloadProgress& progress) {
    const std::lock_guard lock(mutex_);
    // Unpacking a package computes the hash of the model in it.
    pull_.state = progress.phase == DownloadPhase::downloading ? PullState::downloading : PullState::verifying;
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
  catalog_thread_.post([this, name = std::move(name), done = std::move(done)] {
    {
      const std::lock_guard lock(mutex_);
      if (!pull_.is_running() || pull_.name != name) {
        return done(http_error(404, fmt::format("'{}' is not being downloaded", name)));
      }
      cancels_pull_ = true;
    }
    // The download checks for cancellation several times a second.
    while (!stopping_) {
      {
        const std::lock_guard lock(mutex_);
        if (!pull_.is_running()) return done(LibraryResponse{.body = pull_body(pull_)});
      }
      std::this_thread::sleep_for(kUnloadPause);
    }
  });
}

void HubLibrary::post_load(std::string name, Done done, std::function<Response(const std::string& name)> load) {
  loader_thread_.post([this, name = std::move(name), done = std::move(done), load = std::move(load)] {
    set_activating(name);
    Response response = load(name);
    set_activating("");
    done(std::move(response));
  });
}

void HubLibrary::activate(std::string name, bool keep_others, Done done) {
  post_load(std::move(name), std::move(done),
            [this, keep_others](const std::string& wanted) { return activate_now(wanted, keep_others); });
}

void HubLibrary::ensure_loaded(std::string name, Done done) {
  // An unknown name is reported at once, even while another model is loading.
  catalog_thread_.post([this, typed = std::move(name), done = std::move(done)] {
    const std::string name = full_name(typed);
    const std::variant<ModelEntry, ApiError> found = find_installed(name);
    if (const ApiError* error = std::get_if<ApiError>(&found)) return done(model_not_found(error->message));
    post_load(name, done, [this](const std::string& wanted) { return ensure_loaded_now(wanted); });
  });
}

std::optional<HubLibrary::KnownModel> HubLibrary::find_known(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  for (const KnownModel& model : known_) {
    if (model.has_name(name)) return model;
  }
  return std::nullopt;
}

std::string HubLibrary::full_name(const std::string& name) const {
  if (find_known(name)) return name;
  std::vector<std::string> names;
  for (const ModelEntry& entry : list_models(settings_, host_memory())) {
    if (entry.id == name || entry.id == "ollama:" + name) return name;
    names.push_back(entry.id);
  }
  {
    const std::lock_guard lock(mutex_);
    for (const KnownModel& model : known_) names.push_back(model.name);
  }
  const std::vector<std::string> meant = match_model_name(name, names);
  return meant.size() == 1 ? meant.front() : name;
}

std::variant<ModelEntry, ApiError> HubLibrary::find_installed(const std::string& name) const {
  if (const std::optional<KnownModel> known = find_known(name)) {
    Result<ModelEntry> shown = show_model(settings_, known->path, memory_());
    if (!shown.ok()) return bad_field("model", shown.error().message);
    return std::move(shown.value());
  }
  std::optional<ModelEntry> listed = find_listed(settings_, name);
  if (!listed) listed = find_listed(settings_, "ollama:" + name);  // as Ollama's clients name the models of its store
  if (!listed) return unknown_name(name);
  if (listed->path.empty()) return bad_field("model", fmt::format("'{}' is not installed; pull it first", name));
  set_fit(*listed, memory_());
  return std::move(*listed);
}

HubLibrary::Response HubLibrary::activate_now(const std::string& typed, bool keep_others) {
  const std::string name = full_name(typed);
  const std::variant<ModelEntry, ApiError> found = find_installed(name);
  if (const ApiError* error = std::get_if<ApiError>(&found)) return *error;
  const ModelEntry& entry = std::get<ModelEntry>(found);
  if (const std::optional<KnownModel> loaded_as = find_loaded(name, entry.path)) {
    for (const KnownModel& other : loaded()) {
      if (!keep_others && other.name != loaded_as->name) unload_engine(other.name);
    }
    return activated(loaded_as->name);
  }
  Response response = load_file(name, entry, keep_others);
  if (std::holds_alternative<LibraryResponse>(response) && ModelStore(settings_).find(name)) {
    // The model chosen last is the default of the next start.
    const Status saved = ModelStore(settings_).set_default_model(name);
    if (!saved.ok()) return api_error(saved.error());
  }
  return response;
}

// As activate_now(), but for a request, not the operator: loaded models may stay, and the default is unchanged.
HubLibrary::Response HubLibrary::ensure_loaded_now(const std::string& name) {
  const std::variant<ModelEntry, ApiError> found = find_installed(name);
  if (const ApiError* error = std::get_if<ApiError>(&found)) return model_not_found(error->message);
  const ModelEntry& entry = std::get<ModelEntry>(found);
  if (const std::optional<KnownModel> loaded_as = find_loaded(name, entry.path)) return activated(loaded_as->name);
  return load_file(name, entry, /*keep_others=*/false);
}

HubLibrary::Response HubLibrary::load_file(const std::string& name, const ModelEntry& entry, bool keep_others) {
  if (entry.fit == Fit::too_large) {
    return bad_field("model", fmt::format("'{}' needs {} of memory, more than this machine has", name,
                                          human_bytes(entry.memory_bytes)));
  }
  const std::optional<KnownModel> known = find_known(name);  // `name` may be an alias
  const std::string& loaded_name = known ? known->name : name;
  Response response = swap_in(loaded_name, entry.path.string(), keep_others);
  if (std::get_if<ApiError>(&response)) return response;
  return activated(loaded_name);
}

// If memory suffices, loads the new model before unloading the others; else unloads them first, and reloads them if
// loading fails.
HubLibrary::Response HubLibrary::swap_in(const std::string& name, const std::string& path, bool keep_others) {
  const std::vector<KnownModel> others = loaded();
  const Result<ModelEntry> shown = show_model(settings_, path, memory_());
  const bool fits_with_others = shown.ok() && shown.value().fit == Fit::fits;
  if (keep_others && !fits_with_others) {
    return conflict(
        fmt::format("'{}' does not fit in memory together with the loaded models; unload them first", name));
  }
  if (!fits_with_others) {
    for (const KnownModel& other : others) unload_engine(other.name);
  }
  const Status done = load_now(name, path);
  if (!done.ok() && !fits_with_others) {
    for (const KnownModel& other : others) {
      if (Status reloaded = load_now(other.name, other.path); !reloaded.ok()) return api_error(reloaded.error());
    }
  }
  if (!done.ok()) return api_error(done.error());
  for (const KnownModel& other : others) {
    if (fits_with_others && !keep_others) unload_engine(other.name);
  }
  return LibraryResponse{};
}

void HubLibrary::unload_engine(const std::string& name) {
  std::shared_ptr<EngineThread> engine;  // the last reference destroys it, which takes time: keep it on this thread
  {
    const std::lock_guard lock(mutex_);
    for (const LoadedEngine& model : loaded_) {
      if (model.name == name) engine = model.engine;
    }
    std::erase_if(retired_, [](const std::weak_ptr<EngineThread>& old) { return old.expired(); });
    retired_.push_back(engine);
    std::erase_if(loaded_, [&](const LoadedEngine& model) { return model.name == name; });
  }
  models_.remove(name);
  while (engine.use_count() > 1 && !stopping_) std::this_thread::sleep_for(kUnloadPause);
}

void HubLibrary::unload(std::string name, Done done) {
  loader_thread_.post([this, name = std::move(name), done = std::move(done)] { done(unload_now(name)); });
}

HubLibrary::Response HubLibrary::unload_now(const std::string& typed) {
  const std::string name = full_name(typed);
  const std::optional<ModelEntry> listed = find_listed(settings_, name);
  const std::optional<KnownModel> active = find_loaded(name, listed ? listed->path : std::filesystem::path());
  if (!active) {
    const std::string message = fmt::format("'{}' is not loaded", name.substr(0, 100));
    const bool is_installed = std::holds_alternative<ModelEntry>(find_installed(name));
    return is_installed ? http_error(404, message) : model_not_found(message);
  }
  unload_engine(active->name);
  return LibraryResponse{.body = {{"object", "model.unload"}, {"id", active->name}, {"active", false}}};
}

void HubLibrary::remove(std::string name, bool force, Done done) {
  loader_thread_.post([this, name = std::move(name), force, done = std::move(done)] { done(remove_now(name, force)); });
}

HubLibrary::Response HubLibrary::remove_now(const std::string& name, bool force) {
  const ModelStore store(settings_);
  const std::optional<InstalledModel> model = is_plain_file_name(name) ? store.find(name) : std::nullopt;
  if (!model)
    return http_error(404,
                      fmt::format("'{}' was not downloaded by zinc and cannot be removed here", name.substr(0, 100)));
  const std::optional<KnownModel> active = find_loaded(name, model->path());
  if (active && !force) return conflict(fmt::format("'{}' is loaded; \"force\": true unloads it first", name));
  if (active) unload_engine(active->name);
  const DownloadHooks hooks{.cancelled = [this] { return stopping_.load(); }};
  const Result<FileLock> lock = store.lock(name, hooks);
  if (!lock.ok()) return api_error(lock.error());
  const Result<uint64_t> freed = store.remove(name);
  if (!freed.ok()) return api_error(freed.error());
  const bool was_default = store.default_model() == name;
  if (was_default) {
    if (Status cleared = store.set_default_model(""); !cleared.ok()) return api_error(cleared.error());
  }
  return LibraryResponse{.body = {{"object", "model.remove"},
                                  {"id", name},
                                  {"removed", true},
                                  {"unloaded_from_gpu", active.has_value()},
                                  {"cleared_active_selection", was_default},
                                  {"freed_bytes", freed.value()}}};
}

}  // namespace zinc
