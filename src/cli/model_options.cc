#include "cli/model_options.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/mapped_file.h"
#include "base/pluralize.h"
#include "base/thread_pool.h"
#include "cli/model_file.h"
#include "cli/number_in_range.h"
#include "cli/output.h"
#include "cli/split_hosts.h"
#include "engine/placement.h"
#include "tensor/format.h"
#include "text/chat_template.h"

namespace zinc {
namespace {

bool is_auto(const ModelOptions& options) { return options.backend.empty() || options.backend == "auto"; }

// A backend that could not be opened, with the reason unless its device or driver is simply absent.
std::string unusable_text(const BackendInfo& backend) {
  const Result<std::unique_ptr<Backend>> opened = backend.open(1);
  const bool is_absent = opened.ok() || opened.error().code == ErrorCode::not_found;
  return is_absent ? std::string(backend.name) : fmt::format("{} ({})", backend.name, opened.error().message);
}

// The source of a template file that compiles; empty: none is given.
Result<std::string> read_chat_template(const std::string& path) {
  if (path.empty()) return std::string();
  ZINC_TRY(file, MappedFile::open(path));
  std::string source(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  if (const Result<ChatTemplate> compiled = ChatTemplate::compile(source); !compiled.ok())
    return fail(compiled.error().code, "{}: {}", path, compiled.error().message);
  return source;
}

// "f32, f16, q8_0, fp8 (reference, cuda)": the backends of a format that not all have.
std::string kv_formats_text() {
  std::string text;
  for (const std::string_view format : all_kv_formats()) {
    std::string having;
    bool all_have = true;
    for (const BackendInfo* const* b = kBackends; *b; ++b) {
      const bool has = has_kv_format(**b, format);
      if (has) having += fmt::format("{}{}", having.empty() ? "" : ", ", (*b)->name);
      all_have = all_have && has;
    }
    text += fmt::format("{}{}", text.empty() ? "" : ", ", format);
    if (!all_have) text += fmt::format(" ({})", having);
  }
  return text;
}

}  // namespace

void declare_chat_template_option(CLI::App& app, ModelOptions& options) {
  app.add_option("--chat-template", options.chat_template, "Jinja file that replaces the model's chat template")
      ->option_text("FILE");
}

void declare_kv_option(CLI::App& app, std::string& kv_format, std::string_view default_text) {
  const std::vector<std::string_view> formats = all_kv_formats();
  const std::vector<std::string> names(formats.begin(), formats.end());
  const auto plain_name = [](std::string name) { return name == "fp8_e4m3" ? "fp8" : name; };
  app.add_option("--kv", kv_format, fmt::format("KV cache format: {} (default: {})", kv_formats_text(), default_text))
      ->transform(CLI::IsMember(names, plain_name));
}

namespace {

// Why a value of --device is not valid; empty: it is.
std::string device_error(const std::string& list) {
  if (list.empty() || list == "auto") return "";
  for (size_t begin = 0; begin <= list.size();) {
    const size_t comma = std::min(list.find(',', begin), list.size());
    const Result<const BackendInfo*> known = find_backend(std::string_view(list).substr(begin, comma - begin));
    if (!known.ok()) return known.error().message;
    begin = comma + 1;
  }
  return "";
}

// Chunks whose experts are copied contain whole chunks of every recurrent scan.
std::string is_whole_scan_chunks(const std::string& text) {
  constexpr int kScanChunk = 64;
  return std::stoi(text) % kScanChunk == 0 ? "" : fmt::format("{} is not a multiple of {}", text, kScanChunk);
}

// Why a value of --split is not valid; empty: it is.
std::string split_error(const std::string& text) {
  if (text == "layers" || text == "tensor") return "";
  for (size_t begin = 0; begin <= text.size();) {
    const size_t comma = std::min(text.find(',', begin), text.size());
    std::string ratio = text.substr(begin, comma - begin);
    if (const std::string error = number_in_range(0.01, 1e6)(ratio); !error.empty()) {
      return fmt::format("'{}' is not layers, tensor or ratios such as 3,1", text);
    }
    begin = comma + 1;
  }
  return "";
}

// REQUIRES: split_error(text) is empty.
void read_split(const std::string& text, PlacementOptions& placement) {
  placement.split_mode = text == "tensor" ? SplitMode::tensor : SplitMode::layers;
  if (text == "layers" || text == "tensor") return;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t comma = std::min(text.find(',', begin), text.size());
    placement.split.push_back(std::stod(text.substr(begin, comma - begin)));
    begin = comma + 1;
  }
}

// Where the layers of a model run that is larger than the GPU's memory (docs/devices.md).
void declare_placement_options(CLI::App& app, PlacementOptions& placement) {
  CLI::Option* const gpu_layers =
      app.add_option("--gpu-layers", placement.gpu_layers,
                     "run the last N layers on the GPU and the others on the CPU (default: as many as fit)")
          ->check(number_in_range(1, 1 << 20))
          ->option_text("N");
  app.add_option_function<std::string>(
         "--cpu-experts",
         [&placement](const std::string& text) {
           placement.cpu_experts = text == "all" ? PlacementOptions::kAllLayers : std::stoi(text);
         },
         "keep the routed experts of the first N layers, or of all, in host memory and run them on the CPU (default: "
         "as many as the GPU has no room for)")
      ->check(
          [](const std::string& text) {
            std::string number = text;
            return text == "all" ? "" : number_in_range(1, PlacementOptions::kAllLayers)(number);
          },
          "")
      ->option_text("N|all");
  app.add_option(
         "--stream-experts", placement.streamed_tokens,
         "whole chunks of N prompt tokens use experts in host memory on the GPU, copied layer by layer; 0: never "
         "(default: 512 if copying is faster than the CPU)")
      ->check(number_in_range(0, 1 << 20))
      ->check(is_whole_scan_chunks, "")
      ->option_text("N");
  app.add_option("--gpu-memory", placement.gpu_memory,
                 "memory of each GPU that the model may use, such as 8G (default: all that is free)")
      ->transform(CLI::AsSizeValue(false))
      ->option_text("SIZE");
  app.add_option_function<std::string>(
         "--split", [&placement](const std::string& text) { read_split(text, placement); },
         "how the devices of --device divide the model: layers (each has whole layers, by free memory), ratios such as "
         "3,1 (of the layers), or tensor (each has a part of every layer: tensor parallelism; for GPUs of one kind; "
         "the default only if measured to be faster)")
      ->excludes(gpu_layers)
      ->check(split_error, "")
      ->option_text("layers|tensor|RATIOS");
}

}  // namespace

void declare_backend_options(CLI::App& app, ModelOptions& options) {
  // Not the backend's name: finding it opens a GPU, and the man page is read on other machines.
  const std::string usual = options.backend.empty() ? "auto, the fastest available" : options.backend;
  app.add_option("--device,--backend", options.backend,
                 fmt::format("compute backend: auto, {}; cuda:N or vulkan:NAME selects a GPU; a list such as cuda,cpu "
                             "splits the model's layers over several (default: {})",
                             backend_names(), usual))
      ->check(device_error, "");
  declare_placement_options(app, options.placement);
  declare_kv_option(app, options.kv_format, "the backend's own");
}

void declare_split_hosts_option(CLI::App& app, ModelOptions& options) {
  app.add_flag(std::string(kSplitHostsOption), options.splits_hosts,
               "split the model's layers over the processes of mpirun, one device each, on one or several machines "
               "(docs/devices.md)");
}

void declare_model_options(CLI::App& app, ModelOptions& options) {
  declare_backend_options(app, options);
  declare_split_hosts_option(app, options);
  app.add_option("-t,--threads", options.n_threads, "CPU threads (0: one per core)")
      ->capture_default_str()
      ->check(number_in_range(0, 1024));
}

BackendChoice backend_of(const ModelOptions& options) {
  return {.name = is_auto(options) ? "" : options.backend,
          .kv_format = options.kv_format.empty() ? nullptr : find_format(options.kv_format)};
}

Result<ModelInstance> load_model(const ModelOptions& options) {
  ZINC_TRY(model, open_model(options));
  if (Status s = model.upload(); !s.ok()) return s.error();
  return std::move(model);
}

namespace {

// `engine`: what the model will run, or nullptr.
Result<ModelInstance> open_model_for(const ModelOptions& options, Draft draft, const EngineOptions* engine) {
  ZINC_TRY(file, model_file(options.path));
  if (const int n_cores = default_thread_count(); options.n_threads > n_cores) {
    print_stderr(fmt::format("zinc: -t {} exceeds this machine's {}; fewer threads are usually faster",
                             options.n_threads, pluralize(n_cores, "core")));
  }
  ZINC_TRY(chat_template, read_chat_template(options.chat_template));
  const BackendChoice backend = backend_of(options);
  return ModelInstance::open(file, {.backend = backend.name,
                                    .n_threads = options.n_threads,
                                    .kv_format = backend.kv_format,
                                    .draft = draft,
                                    .chat_template = std::move(chat_template),
                                    .placement = options.placement,
                                    .world = options.splits_hosts ? mpi::World::joined() : nullptr,
                                    .engine = engine});
}

}  // namespace

Result<ModelInstance> open_model(const ModelOptions& options, Draft draft) {
  return open_model_for(options, draft, nullptr);
}

Result<std::unique_ptr<Engine>> load_engine(const ModelOptions& options, EngineOptions engine_options) {
  SpeculationOptions& speculation = engine_options.speculation;
  const Draft draft_graph = speculation.mode == SpeculationMode::mtp ? Draft::load : Draft::skip;
  ZINC_TRY(model, open_model_for(options, draft_graph, &engine_options));
  if (!speculation.draft_model.empty()) {
    ZINC_TRY(draft, model_file(speculation.draft_model.string()));
    speculation.draft_model = draft;
  }
  return Engine::create(std::move(model), std::move(engine_options));
}

std::string device_text(const ModelOptions& options, const ModelInstance& model) {
  const BackendInfo& chosen = model.backend_info();
  const auto text = [&](std::string_view why) {
    return fmt::format("backend {}, device {} ({})", chosen.name, model.backend().info().name, why);
  };
  if (model.is_placed_automatically()) return text("the model does not fit the GPU alone");
  if (!is_auto(options)) return text("as requested");
  std::string skipped;
  for (const BackendInfo* const* b = kBackends; *b; ++b) {
    if ((*b)->priority > chosen.priority) skipped += (skipped.empty() ? "" : ", ") + unusable_text(**b);
  }
  if (skipped.empty()) return text("fastest available backend");
  return text("not available: " + skipped + "; `zinc check` explains why");
}

void print_placement(const Engine& engine) {
  if (engine.model().devices().size() == 1) return;
  std::string table = placement_table(engine.model(), engine.limits().devices);
  table.pop_back();
  print_stderr(table);
}

}  // namespace zinc
