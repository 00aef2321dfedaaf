// The models of this machine for the server: the hub's list, its downloads and its store, and the engines that are
// loaded. Lists and removals run on one thread, loading on a second, the download on a third; the ModelList is what
// requests see. stop() before what the engines report to goes away.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/task_thread.h"
#include "hub/download.h"
#include "hub/inventory.h"
#include "server/engine_thread.h"
#include "server/model_library.h"
#include "server/served_model.h"

namespace zinc {

class HubLibrary final : public ModelLibrary {
 public:
  using Load = std::function<Result<std::unique_ptr<EngineThread>>(const std::string& name, const std::string& path)>;

  HubLibrary(HubSettings settings, ModelList& models, Load load);
  // From now on nobody can have this machine fetch an address of their choice: others can reach the server.
  void refuse_addresses() { refuses_addresses_ = true; }
  ~HubLibrary() override { stop(); }

  // Loads a model under this name; the caller's thread.
  Status load_now(const std::string& name, const std::string& path);
  Status stop_and_save();  // as stop(), and every loaded engine saves its prefix tree
  void stop();             // unloads all, ends what is under way

  void list(Done done) override;
  void pull(std::string name, Done done) override;
  void cancel_pull(std::string name, Done done) override;
  void activate(std::string name, bool beside, Done done) override;
  void bring(std::string name, Done done) override;
  void remove(std::string name, bool force, Done done) override;

 private:
  using Answer = std::variant<LibraryAnswer, ApiError>;
  struct Place {
    std::string name, path;
  };
  struct Loaded : Place {
    std::shared_ptr<EngineThread> engine;  // copied by unload() only, which waits until it is the last
  };
  enum class PullState : uint8_t { idle, downloading, verifying, installed, cancelled, failed };
  struct Pull {  // the latest one
    std::string name;
    PullState state = PullState::idle;
    uint64_t n_bytes = 0, n_done = 0;
    std::string error;
    bool is_running() const { return state == PullState::downloading || state == PullState::verifying; }
  };

  Answer list_now();
  Answer remove_now(const std::string& name, bool force);
  Answer activate_now(const std::string& name, bool beside);
  Answer bring_now(const std::string& name);
  // A model of this machine, by its id in the list or by what it was loaded as before.
  std::variant<ModelEntry, ApiError> find_installed(const std::string& name) const;
  Answer load_file(const std::string& name, const ModelEntry& entry, bool beside);
  void post_loading(std::string name, Done done, std::function<Answer(const std::string& name)> load);
  Answer load_in_place(const std::string& name, const std::string& path, bool beside);
  void run_pull(const std::string& name);
  static std::string_view state_name(PullState state);
  json::object pull_body(const Pull& pull) const;
  json::object item(const ModelEntry& entry) const;
  std::optional<Place> find_loaded(const std::string& name, const std::filesystem::path& path) const;
  std::vector<Place> loaded() const;
  std::optional<Place> find_known(const std::string& name) const;
  // Takes a model out of service and waits until its last answer is over.
  void unload(const std::string& name);

  HubSettings settings_;
  ModelList& models_;
  Load load_;
  mutable std::mutex mutex_;  // of what follows
  std::vector<Loaded> loaded_;
  std::vector<Place> known_;                          // loaded at some time: they can be again
  std::vector<std::weak_ptr<EngineThread>> retired_;  // out of service; answers may still run
  Pull pull_;
  std::string activating_;
  bool refuses_addresses_ = false;
  std::atomic<bool> cancels_pull_ = false, stopping_ = false;
  TaskThread shelf_, loader_, puller_;  // last: they use the rest
};

}  // namespace zinc
