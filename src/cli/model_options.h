// The options every command that runs a model shares: which model, which backend, how many threads.
#pragma once

#include <CLI/CLI.hpp>

#include <string>

#include "engine/model_instance.h"

namespace zinc {

struct ModelOptions {
  std::string path;       // as typed (cli/model_file.h); empty: the default model
  std::string backend;    // perhaps with a device, "cuda:1"; empty or "auto": the fastest that is usable
  std::string kv_format;  // empty: the backend's own
  int n_threads = 0;
};

// Declares --kv, one of f32, f16, q8_0 and fp8, which others call fp8_e4m3.
void declare_kv_option(CLI::App& app, std::string& kv_format, const std::string& help);
// Declares --device, which is called --backend too, and --kv on `app`.
void declare_backend_options(CLI::App& app, ModelOptions& options);
// These and --threads.
void declare_model_options(CLI::App& app, ModelOptions& options);
Result<ModelInstance> load_model(const ModelOptions& options);
// Which device that took, and why: "device cuda, NVIDIA H200 (the fastest there is)".
std::string device_text(const ModelOptions& options, const ModelInstance& model);

}  // namespace zinc
