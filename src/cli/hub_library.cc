#include "cli/hub_library.h"

#include <fmt/core.h>

#include <chrono>

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

// The web page of a model.
std::string homepage_of(const ModelEntry& entry, const HubSettings& settings) {
  if (!has_source_prefix(entry.source)) return {};
  const Result<Source> source = parse_source(entry.source);
  if (!source.ok() || source.value().kind != SourceKind::hugging_face) return {};
  return settings.hf_endpoint + "/" + source.value().name;
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
  KnownModel known = find_known(name).value_or(KnownModel{.name = name, .path = path});
  known.path = path;
  described.aliases = known.aliases;
  if (recommends_sampling_) {
    const GgufFile& file = shared->model().file();
    described.sampling_defaults = {.unset = sampling_params(recommended_sampling(file)),
                                   .thinking = sampling_params(recommended_sampling(file, true)),
                                   .not_thinking = sampling_params(recommended_sampling(file, false))};
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

void HubLibrary::list(Done<ModelListing> done) {
  catalog_thread_.post([this, done = std::move(done)] { done(list_now()); });
}

ListedModel HubLibrary::listed(ModelEntry entry) const {
  std::string homepage_url = homepage_of(entry, settings_);
  const std::optional<KnownModel> loaded = find_loaded(entry.id, entry.path);
  return {.entry = std::move(entry),
          .homepage_url = std::move(homepage_url),
          .served_as = loaded ? std::optional(loaded->name) : std::nullopt};
}

ModelListing HubLibrary::list_now() {
  ModelListing out{.memory = memory_()};
  std::vector<KnownModel> unlisted;  // loaded by path
  {
    const std::lock_guard lock(mutex_);
    unlisted = known_;
    out.activating = activating_;
    out.pull = pull_;
  }
  for (ModelEntry& entry : list_models(settings_, out.memory)) {
    const ListedModel& model = out.models.emplace_back(listed(std::move(entry)));
    std::erase_if(unlisted, [&](const KnownModel& other) {
      return other.path == model.entry.path || other.name == model.served_as;
    });
  }
  for (const KnownModel& model : unlisted) {
    Result<ModelEntry> shown = show_model(settings_, model.path, out.memory);
    if (!shown.ok()) continue;
    ModelEntry& entry = shown.value();
    entry.id = model.name;
    entry.location = ModelLocation::path;
    out.models.push_back(listed(std::move(entry)));
  }
  return out;
}

void HubLibrary::pull(std::string name, Done<PullStatus> done) {
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
    if (found.value()) return done(PullStatus{.id = name, .state = PullStatus::State::installed});
    PullStatus started;
    {
      const std::lock_guard lock(mutex_);
      if (pull_ && pull_->is_running() && pull_->id != name) {
        return done(conflict(fmt::format("'{}' is being downloaded; wait for it or cancel it", pull_->id)));
      }
      if (!pull_ || !pull_->is_running()) {
        cancels_pull_ = false;
        pull_ = PullStatus{.id = name};
        download_thread_.post([this, name] { run_pull(name); });
      }
      started = *pull_;
    }
    done(started);
  });
}

void HubLibrary::run_pull(const std::string& name) {
  using enum PullStatus::State;
  DownloadHooks hooks;
  hooks.progress = [this](const DownloadProgress& progress) {
    const std::lock_guard lock(mutex_);
    // Unpacking a package computes the hash of the model in it.
    pull_->state = progress.phase == DownloadPhase::downloading ? downloading : verifying;
    pull_->n_bytes = progress.n_bytes;
    pull_->n_done = progress.n_done;
  };
  hooks.cancelled = [this] { return cancels_pull_.load(); };
  const Result<std::filesystem::path> path = resolve_model(settings_, name, hooks);
  const std::lock_guard lock(mutex_);
  pull_->state = path.ok() ? installed : cancels_pull_ ? cancelled : failed;
  if (pull_->state == failed) pull_->error = path.error().message;
}

void HubLibrary::cancel_pull(std::string name, Done<PullStatus> done) {
  catalog_thread_.post([this, name = std::move(name), done = std::move(done)] {
    {
      const std::lock_guard lock(mutex_);
      if (!pull_ || !pull_->is_running() || pull_->id != name) {
        return done(http_error(404, fmt::format("'{}' is not being downloaded", name)));
      }
      cancels_pull_ = true;
    }
    // The download checks for cancellation several times a second.
    while (!stopping_) {
      {
        const std::lock_guard lock(mutex_);
        if (!pull_->is_running()) return done(*pull_);
      }
      std::this_thread::sleep_for(kUnloadPause);
    }
  });
}

void HubLibrary::post_load(std::string name, Done<std::string> done,
                           std::function<LoadedName(const std::string& name)> load) {
  loader_thread_.post([this, name = std::move(name), done = std::move(done), load = std::move(load)] {
    set_activating(name);
    const LoadedName loaded = load(name);
    set_activating("");
    done(loaded);
  });
}

void HubLibrary::activate(std::string name, bool keep_others, Done<std::string> done) {
  post_load(std::move(name), std::move(done),
            [this, keep_others](const std::string& wanted) { return activate_now(wanted, keep_others); });
}

void HubLibrary::ensure_loaded(std::string name, Done<std::string> done) {
  // An unknown name is reported at once, even while another model is loading.
  catalog_thread_.post([this, typed = std::move(name), done = std::move(done)] {
    const std::string name = full_name(typed);
    const OrApiError<ModelEntry> found = find_installed(name);
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

OrApiError<ModelEntry> HubLibrary::find_installed(const std::string& name) const {
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

HubLibrary::LoadedName HubLibrary::activate_now(const std::string& typed, bool keep_others) {
  const std::string name = full_name(typed);
  const OrApiError<ModelEntry> found = find_installed(name);
  if (const ApiError* error = std::get_if<ApiError>(&found)) return *error;
  const ModelEntry& entry = std::get<ModelEntry>(found);
  if (const std::optional<KnownModel> loaded_as = find_loaded(name, entry.path)) {
    for (const KnownModel& other : loaded()) {
      if (!keep_others && other.name != loaded_as->name) unload_engine(other.name);
    }
    return loaded_as->name;
  }
  const LoadedName loaded_name = load_file(name, entry, keep_others);
  if (std::holds_alternative<std::string>(loaded_name) && ModelStore(settings_).find(name)) {
    // The model chosen last is the default of the next start.
    const Status saved = ModelStore(settings_).set_default_model(name);
    if (!saved.ok()) return api_error(saved.error());
  }
  return loaded_name;
}

// As activate_now(), but for a request, not the operator: loaded models may stay, and the default is unchanged.
HubLibrary::LoadedName HubLibrary::ensure_loaded_now(const std::string& name) {
  const OrApiError<ModelEntry> found = find_installed(name);
  if (const ApiError* error = std::get_if<ApiError>(&found)) return model_not_found(error->message);
  const ModelEntry& entry = std::get<ModelEntry>(found);
  if (const std::optional<KnownModel> loaded_as = find_loaded(name, entry.path)) return loaded_as->name;
  return load_file(name, entry, /*keep_others=*/false);
}

HubLibrary::LoadedName HubLibrary::load_file(const std::string& name, const ModelEntry& entry, bool keep_others) {
  if (entry.fit == Fit::too_large && !memory_().is_gpu) {  // a GPU's model may be split: loading it tells
    return bad_field("model", fmt::format("'{}' needs {} of memory, more than this machine has", name,
                                          human_bytes(entry.memory_bytes)));
  }
  const std::optional<KnownModel> known = find_known(name);  // `name` may be an alias
  const std::string& loaded_name = known ? known->name : name;
  if (std::optional<ApiError> error = swap_in(loaded_name, entry.path.string(), keep_others)) return std::move(*error);
  return loaded_name;
}

// If memory suffices, loads the new model before unloading the others; else unloads them first, and reloads them if
// loading fails.
std::optional<ApiError> HubLibrary::swap_in(const std::string& name, const std::string& path, bool keep_others) {
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
  return {};
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

void HubLibrary::unload(std::string name, Done<std::string> done) {
  loader_thread_.post([this, name = std::move(name), done = std::move(done)] { done(unload_now(name)); });
}

HubLibrary::LoadedName HubLibrary::unload_now(const std::string& typed) {
  const std::string name = full_name(typed);
  const std::optional<ModelEntry> listed = find_listed(settings_, name);
  const std::optional<KnownModel> active = find_loaded(name, listed ? listed->path : std::filesystem::path());
  if (!active) {
    const std::string message = fmt::format("'{}' is not loaded", name.substr(0, 100));
    const bool is_installed = std::holds_alternative<ModelEntry>(find_installed(name));
    return is_installed ? http_error(404, message) : model_not_found(message);
  }
  unload_engine(active->name);
  return active->name;
}

void HubLibrary::remove(std::string name, bool force, Done<RemovedModel> done) {
  loader_thread_.post([this, name = std::move(name), force, done = std::move(done)] { done(remove_now(name, force)); });
}

OrApiError<RemovedModel> HubLibrary::remove_now(const std::string& name, bool force) {
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
  return RemovedModel{
      .id = name, .was_loaded = active.has_value(), .was_default = was_default, .n_freed_bytes = freed.value()};
}

}  // namespace zinc
