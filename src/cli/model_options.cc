#include "cli/model_options.h"

#include <fmt/format.h>

#include "cli/model_file.h"
#include "tensor/format.h"

namespace zinc {
namespace {

bool is_auto(const ModelOptions& options) { return options.backend.empty() || options.backend == "auto"; }

}  // namespace

void declare_backend_options(CLI::App& app, ModelOptions& options) {
  const std::string usual =
      options.backend.empty() ? fmt::format("auto, here {}", default_backend().name) : options.backend;
  app.add_option("--device,--backend", options.backend,
                 fmt::format("what computes: auto, {}; cuda:N and vulkan:NAME say which card (default: {})",
                             backend_names(), usual));
  app.add_option("--kv", options.kv_format,
                 "how keys and values are kept: f32, f16 or q8_0 (default: what the backend prefers)")
      ->check(CLI::IsMember({"f32", "f16", "q8_0"}));
}

void declare_model_options(CLI::App& app, ModelOptions& options) {
  declare_backend_options(app, options);
  app.add_option("-t,--threads", options.n_threads, "CPU threads (0: one per core)")
      ->capture_default_str()
      ->check(CLI::Range(0, 1024));
}

Result<ModelInstance> load_model(const ModelOptions& options) {
  ZINC_TRY(file, model_file(options.path));
  return ModelInstance::load(file, {.backend = is_auto(options) ? "" : options.backend,
                                    .n_threads = options.n_threads,
                                    .kv_format = options.kv_format.empty() ? nullptr : find_format(options.kv_format)});
}

std::string device_text(const ModelOptions& options, const ModelInstance& model) {
  const BackendInfo& chosen = model.backend_info();
  std::string passed_over;
  for (const BackendInfo* const* b = kBackends; *b; ++b) {
    if ((*b)->rank > chosen.rank) passed_over += (passed_over.empty() ? "" : ", ") + std::string((*b)->name);
  }
  const std::string why = !is_auto(options)     ? "as asked for"
                          : passed_over.empty() ? "the fastest there is"
                                                : "not usable here: " + passed_over + "; `zinc check` says why";
  return fmt::format("device {}, {} ({})", chosen.name, model.backend().info().name, why);
}

}  // namespace zinc
