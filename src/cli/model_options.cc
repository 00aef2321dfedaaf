#include "cli/model_options.h"

#include <fmt/format.h>

#include "base/counted.h"
#include "base/thread_pool.h"
#include "cli/model_file.h"
#include "cli/number_between.h"
#include "cli/output.h"
#include "tensor/format.h"

namespace zinc {
namespace {

bool is_auto(const ModelOptions& options) { return options.backend.empty() || options.backend == "auto"; }

// A backend that could not be opened: with the reason, unless what it needs is simply not there.
std::string unusable_text(const BackendInfo& backend) {
  const Result<std::unique_ptr<Backend>> opened = backend.open(1);
  const bool is_absent = opened.ok() || opened.error().code == ErrorCode::not_found;
  return is_absent ? std::string(backend.name) : fmt::format("{} ({})", backend.name, opened.error().message);
}

}  // namespace

void declare_kv_option(CLI::App& app, std::string& kv_format, const std::string& help) {
  const auto plain_name = [](std::string name) { return name == "fp8_e4m3" ? "fp8" : name; };
  app.add_option("--kv", kv_format, help)->transform(CLI::IsMember({"f32", "f16", "q8_0", "fp8"}, plain_name));
}

void declare_backend_options(CLI::App& app, ModelOptions& options) {
  // Not by its name: that takes opening a GPU, and a page of the manual is read on other machines.
  const std::string usual = options.backend.empty() ? "auto, the fastest that is usable" : options.backend;
  app.add_option("--device,--backend", options.backend,
                 fmt::format("what computes: auto, {}; cuda:N and vulkan:NAME say which card (default: {})",
                             backend_names(), usual))
      ->check(
          [](const std::string& name) {
            const Result<const BackendInfo*> known = find_backend(name);
            return name.empty() || name == "auto" || known.ok() ? std::string() : known.error().message;
          },
          "");
  declare_kv_option(
      app, options.kv_format,
      "how keys and values are kept: f32, f16, q8_0, or fp8 on cuda and reference (default: what the backend prefers)");
}

void declare_model_options(CLI::App& app, ModelOptions& options) {
  declare_backend_options(app, options);
  app.add_option("-t,--threads", options.n_threads, "CPU threads (0: one per core)")
      ->capture_default_str()
      ->check(number_between(0, 1024));
}

Result<ModelInstance> load_model(const ModelOptions& options) {
  ZINC_TRY(file, model_file(options.path));
  if (const int n_cores = default_thread_count(); options.n_threads > n_cores) {
    note(fmt::format("zinc: -t {} is more than this machine's {}: fewer threads would be faster", options.n_threads,
                     counted(n_cores, "core")));
  }
  return ModelInstance::load(file, {.backend = is_auto(options) ? "" : options.backend,
                                    .n_threads = options.n_threads,
                                    .kv_format = options.kv_format.empty() ? nullptr : find_format(options.kv_format)});
}

std::string device_text(const ModelOptions& options, const ModelInstance& model) {
  const BackendInfo& chosen = model.backend_info();
  const auto text = [&](std::string_view why) {
    return fmt::format("device {}, {} ({})", chosen.name, model.backend().info().name, why);
  };
  if (!is_auto(options)) return text("as asked for");
  std::string passed_over;
  for (const BackendInfo* const* b = kBackends; *b; ++b) {
    if ((*b)->rank > chosen.rank) passed_over += (passed_over.empty() ? "" : ", ") + unusable_text(**b);
  }
  if (passed_over.empty()) return text("the fastest there is");
  return text("not usable here: " + passed_over + "; `zinc check` says why");
}

}  // namespace zinc
