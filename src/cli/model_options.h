// The options every command that runs a model shares: which model, which backend, how many threads.
#pragma once

#include <CLI/CLI.hpp>

#include <memory>
#include <string>
#include <string_view>

#include "cli/model_memory.h"
#include "engine/engine.h"

namespace zinc {

struct ModelOptions {
  std::string path;     // as typed (cli/model_file.h); empty: the default model
  std::string backend;  // with a device, "cuda:1", or several, "cuda:0,cpu"; empty or "auto": the fastest available
  PlacementOptions placement = {};
  std::string kv_format;  // empty: the backend's default
  int n_threads = 0;
  bool splits_hosts = false;  // over the processes of mpirun
  std::string chat_template;  // file that replaces the model's chat template; empty: the model's own
};

// Declares --kv: any KV cache format of the backends.
void declare_kv_option(CLI::App& app, std::string& kv_format, std::string_view default_text);
// Declares --device (alias --backend), --gpu-layers, --gpu-memory, --split and --kv.
void declare_backend_options(CLI::App& app, ModelOptions& options);
// Declares --split-hosts, which cli.cc acts upon before the command runs.
void declare_split_hosts_option(CLI::App& app, ModelOptions& options);
// All of these and --threads.
void declare_model_options(CLI::App& app, ModelOptions& options);
// Declares --chat-template, for commands that render conversations.
void declare_chat_template_option(CLI::App& app, ModelOptions& options);
BackendChoice backend_of(const ModelOptions& options);
Result<ModelInstance> load_model(const ModelOptions& options);
// Not yet uploaded: for commands that check first whether it fits.
Result<ModelInstance> open_model(const ModelOptions& options, Draft draft = Draft::skip);
// The model and its engine. SpeculationOptions::draft_model may be a name, as the model's path.
Result<std::unique_ptr<Engine>> load_engine(const ModelOptions& options, EngineOptions engine_options);
// The devices in use and why: "backend cuda, device NVIDIA H200 (fastest available backend)".
std::string device_text(const ModelOptions& options, const ModelInstance& model);
// Prints on standard error which layers are on which device, if the model is split.
void print_placement(const Engine& engine);

}  // namespace zinc
