#include "cli/print_config.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>

#include "base/thread_pool.h"
#include "cli/help_format.h"
#include "cli/hub_settings.h"
#include "cli/model_file.h"
#include "cli/sampling_options.h"
#include "cli/sanitize_line.h"
#include "hub/resolve.h"

namespace zinc {
namespace {

constexpr const char* kDefault = "default";

std::string option_name(const CLI::Option& option) {
  return option.get_lnames().empty() ? option.get_single_name() : option.get_lnames().front();
}

// A value that was given, and whether it came from the environment.
ConfigLine given_line(const CLI::Option& option) {
  const std::string value = CLI::detail::join(option.results(), " ");
  const char* const variable = option.get_envname().empty() ? nullptr : std::getenv(option.get_envname().c_str());
  const bool is_secret = option.check_lname("api-key");
  return {option_name(option), is_secret ? "(hidden)" : value,
          variable && value == variable ? "environment, " + option.get_envname() : "command line"};
}

ConfigLine default_line(const CLI::Option& option) {
  const bool is_flag = option.get_items_expected_max() == 0;
  const std::string value = default_text(option);
  return {option_name(option), value.empty() ? (is_flag ? "false" : "(not set)") : value, kDefault};
}

}  // namespace

void declare_print_config(CLI::App& app, bool& is_wanted) {
  app.add_flag("--print-config", is_wanted,
               "print the effective settings and where each comes from, and do nothing else");
}

std::string config_text(const CLI::App& app, const std::vector<ConfigLine>& resolved) {
  std::vector<ConfigLine> lines = resolved;
  for (const CLI::Option* option : app.get_options()) {
    const std::string name = option_name(*option);
    if (option->get_positional() || name == "help" || name == "print-config") continue;
    const auto known = std::ranges::find(lines, name, &ConfigLine::name);
    if (option->count() > 0 && known != lines.end()) {
      *known = given_line(*option);
    } else if (known == lines.end()) {
      lines.push_back(option->count() > 0 ? given_line(*option) : default_line(*option));
    }
  }
  std::string text;
  for (const ConfigLine& line : lines) {
    text += fmt::format("{} = {}  # {}\n", line.name, sanitize_line(line.value), line.origin);
  }
  return text;
}

std::vector<ConfigLine> resolved_model(const ModelOptions& options) {
  std::vector<ConfigLine> lines;
  const Result<HubSettings> settings = hub_settings();
  const std::string typed = options.path.empty() && settings.ok() ? default_model_name(settings.value()) : options.path;
  const std::string name = settings.ok() ? full_model_name(settings.value(), typed) : typed;
  lines.push_back({"model", name, options.path.empty() ? "default model" : "command line"});
  const Result<std::optional<std::filesystem::path>> file = local_model_file(options.path);
  const bool is_installed = file.ok() && file.value();
  lines.push_back({"file", is_installed ? file.value()->string() : "(not installed)", "model"});
  lines.push_back({"device", std::string(default_backend().name), "default, the fastest available"});
  lines.push_back({"threads", std::to_string(default_thread_count()), "default, one per core"});
  return lines;
}

std::vector<ConfigLine> resolved_sampling(const ModelOptions& options, std::optional<bool> thinking) {
  const Result<std::optional<std::filesystem::path>> path = local_model_file(options.path);
  if (!path.ok() || !path.value()) return {};
  const Result<GgufFile> file = GgufFile::open(*path.value());
  if (!file.ok()) return {};
  const RecommendedSampling r = recommended_sampling(file.value(), thinking);
  const std::string origin(r.origin);
  const SamplingParams params = SamplingOptions().resolve(r);
  std::vector<ConfigLine> lines;
  for (const SamplingField& field : sampling_fields()) {
    if (!field.is_recommended) continue;
    std::string name(field.alias.empty() ? field.name : field.alias);
    std::ranges::replace(name, '_', '-');
    lines.push_back({std::move(name), field_text(field, params), origin});
  }
  lines.push_back({"seed", "random", "default, a new one for each answer"});
  return lines;
}

}  // namespace zinc
