// The server's view of the models on this machine: the hub's catalog, downloads and store, and the loaded engines.
// Listing runs on catalog_thread_, loading and removal on loader_thread_, the download on download_thread_. Requests
// see the ModelList. Call stop() before the objects that the engines report to are destroyed.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/task_thread.h"
#include "engine/engine_thread.h"
#include "hub/download.h"
#include "hub/inventory.h"
#include "server/model_library.h"
#include "server/served_model.h"

namespace zinc {

class HubLibrary final : public ModelLibrary {
 public:
  using Load = std::function<Result<std::unique_ptr<EngineThread>>(const std::string& name, const std::string& path)>;

  // The memory that the models are loaded into, and what an installed one takes of it (cli/model_memory.h).
  using Memory = std::function<MemoryCapacity()>;

  HubLibrary(HubSettings settings, ModelList& models, Memory memory, Load load);
  // Rejects pulls from URLs after this call: other machines can reach the server.
  void forbid_url_pulls() { forbids_url_pulls_ = true; }
  // Models loaded after this call get OpenAI's sampling defaults, not their recommended ones.
  void use_openai_sampling() { recommends_sampling_ = false; }
  ~HubLibrary() override { stop(); }

  // Loads a model under this name and its aliases, on the loader thread, whether it fits or not.
  void load_at_start(std::string name, std::string path, std::vector<std::string> aliases,
                     std::function<void(Status)> done);
  Status stop_and_save();  // as stop(), and every loaded engine saves its prefix cache
  void stop();             // unloads all models, ends running tasks

  void list(Done<ModelListing> done) override;
  void pull(std::string name, Done<PullStatus> done) override;
  void cancel_pull(std::string name, Done<PullStatus> done) override;
  void activate(std::string name, bool keep_others, Done<std::string> done) override;
  void ensure_loaded(std::string name, Done<std::string> done) override;
  void unload(std::string name, Done<std::string> done) override;
  void remove(std::string name, bool force, Done<RemovedModel> done) override;

 private:
  using LoadedName = OrApiError<std::string>;  // the name it is served under
  struct KnownModel {
    std::string name, path;
    std::vector<std::string> aliases = {};
    bool has_name(const std::string& wanted) const {
      return name == wanted || std::ranges::find(aliases, wanted) != aliases.end();
    }
  };
  struct LoadedEngine : KnownModel {
    std::shared_ptr<EngineThread> engine;  // copied by unload_engine() only, which waits for the last other reference
  };
  Status load_now(const std::string& name, const std::string& path);  // with the aliases it had before
  ModelListing list_now();
  LoadedName unload_now(const std::string& typed);
  OrApiError<RemovedModel> remove_now(const std::string& name, bool force);
  LoadedName activate_now(const std::string& typed, bool keep_others);
  LoadedName ensure_loaded_now(const std::string& name);
  // The id in the list or the name it was loaded under, for a name that means exactly one of them, as in the CLI; else
  // `name` itself.
  std::string full_name(const std::string& name) const;
  // An installed model, by its id in the list or by the name it was loaded under.
  OrApiError<ModelEntry> find_installed(const std::string& name) const;
  LoadedName load_file(const std::string& name, const ModelEntry& entry, bool keep_others);
  void post_load(std::string name, Done<std::string> done, std::function<LoadedName(const std::string& name)> load);
  void set_activating(const std::string& name);  // "": none
  std::optional<ApiError> swap_in(const std::string& name, const std::string& path, bool keep_others);
  void run_pull(const std::string& name);
  ListedModel listed(ModelEntry entry) const;
  std::optional<KnownModel> find_loaded(const std::string& name, const std::filesystem::path& path) const;
  std::vector<KnownModel> loaded() const;
  std::optional<KnownModel> find_known(const std::string& name) const;
  // Removes a model from the ModelList and waits for its last request to end.
  void unload_engine(const std::string& name);

  HubSettings settings_;
  ModelList& models_;
  Memory memory_;
  Load load_;
  mutable std::mutex mutex_;  // guards the members below
  std::vector<LoadedEngine> loaded_;
  std::vector<KnownModel> known_;                     // loaded before: can be loaded again
  std::vector<std::weak_ptr<EngineThread>> retired_;  // removed from the list; requests may still run
  std::optional<PullStatus> pull_;                    // the latest one
  std::string activating_;
  bool forbids_url_pulls_ = false;
  bool recommends_sampling_ = true;
  std::atomic<bool> cancels_pull_ = false, stopping_ = false;
  TaskThread catalog_thread_, loader_thread_, download_thread_;  // last: they use the other members
};

}  // namespace zinc
