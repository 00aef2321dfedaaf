#include "cli/model_options.h"

#include <fmt/format.h>

#include "cli/model_file.h"
#include "tensor/format.h"

namespace zinc {

void declare_backend_options(CLI::App& app, ModelOptions& options) {
  app.add_option("--backend", options.backend,
                 fmt::format("what computes: {} (default: {})", backend_names(),
                             options.backend.empty() ? default_backend().name : std::string_view(options.backend)));
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
  return ModelInstance::load(file, {.backend = options.backend,
                                    .n_threads = options.n_threads,
                                    .kv_format = options.kv_format.empty() ? nullptr : find_format(options.kv_format)});
}

}  // namespace zinc
