#include "cli/chat/chat_settings.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <concepts>
#include <optional>

#include "base/nearest_name.h"
#include "cli/number_in_range.h"

namespace zinc {
namespace {

constexpr std::string_view kUnset = "default";

template <class T>
Result<std::optional<T>> parse_setting(std::string_view name, const std::string& value) {
  if (value == kUnset) return std::optional<T>();
  T number{};
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error == std::errc() && end == value.data() + value.size()) return std::optional<T>(number);
  return fail(ErrorCode::invalid_input, "{}: '{}' is not a valid value; expected a {}number or 'default'", name, value,
              std::integral<T> ? "whole " : "");
}

ChatSetting sampling_setting(const SamplingField& field) {
  const std::string_view name = field.alias.empty() ? field.name : field.alias;
  const auto set = [&field, name](ChatOptions& options, const std::string& value) -> Status {
    const auto set_member = [&]<class T>(T SamplingParams::*member) -> Status {
      ZINC_TRY(number, parse_setting<T>(name, value));
      options.sampling.given.erase(field.name);
      if (number) options.sampling.given.insert(field.name);
      options.sampling.params.*member = number.value_or(SamplingParams().*member);
      return ok_status();
    };
    return std::visit(set_member, field.member);
  };
  return {.name = name,
          .alias = field.name,
          .set = set,
          .given =
              [&field](const ChatOptions& options) {
                const SamplingOptions& sampling = options.sampling;
                return sampling.given.contains(field.name) ? field_text(field, sampling.params) : std::string();
              },
          .effective = [&field](const ChatOptions&,
                                const SamplingParams& sampling) { return field_text(field, sampling); }};
}

// A number of tokens; `unset` stands for none.
ChatSetting length_setting(std::string_view name, int& (*field)(ChatOptions&), int unset, std::string_view alias = {}) {
  constexpr const char* kNoLimit = "no limit";
  const auto value_of = [=](const ChatOptions& options) {
    ChatOptions copy = options;
    return field(copy);
  };
  return {.name = name,
          .alias = alias,
          .set = [=](ChatOptions& options, const std::string& value) -> Status {
            std::string text = value;
            const std::string error = value == kUnset ? "" : number_in_range(0, 1 << 30)(text);
            if (!error.empty()) return fail(ErrorCode::invalid_input, "{}: {}", name, error);
            field(options) = unset;
            if (value != kUnset) CLI::detail::lexical_cast(value, field(options));
            return ok_status();
          },
          .given =
              [=](const ChatOptions& options) {
                return value_of(options) == unset ? std::string() : std::to_string(value_of(options));
              },
          .effective =
              [=](const ChatOptions& options, const SamplingParams&) {
                return value_of(options) == unset ? std::string(kNoLimit) : std::to_string(value_of(options));
              }};
}

ChatSetting seed_setting() {
  return {.name = "seed",
          .set = [](ChatOptions& options, const std::string& value) -> Status {
            const std::string error = value == kUnset ? "" : seed_error(value);
            if (!error.empty()) return fail(ErrorCode::invalid_input, "seed: {}", error);
            ZINC_TRY(seed, parse_setting<uint64_t>("seed", value));
            options.sampling.seed = seed;
            return ok_status();
          },
          .given =
              [](const ChatOptions& options) {
                return options.sampling.seed ? std::to_string(*options.sampling.seed) : std::string();
              },
          .effective =
              [](const ChatOptions& options, const SamplingParams&) {
                return options.sampling.seed ? std::to_string(*options.sampling.seed) : "a new one for each answer";
              }};
}

ChatSetting think_setting() {
  return {.name = "think",
          .set = [](ChatOptions& options,
                    const std::string& value) { return set_thinking_mode(value, options.thinking.mode); },
          .given =
              [](const ChatOptions& options) {
                const std::string mode = thinking_mode_name(options.thinking.mode);
                return mode == kUnset ? std::string() : mode;
              },
          .effective =
              [](const ChatOptions& options, const SamplingParams&) {
                const std::string mode = thinking_mode_name(options.thinking.mode);
                return mode == kUnset ? "the model's own mode" : mode;
              }};
}

std::string setting_name(std::string_view typed) {
  std::string name(typed.substr(std::min(typed.find_first_not_of('-'), typed.size())));
  std::ranges::replace(name, '-', '_');
  return name;
}

const ChatSetting* find_setting(std::string_view typed) {
  const std::string name = setting_name(typed);
  const auto found = std::ranges::find_if(
      chat_settings(), [&](const ChatSetting& setting) { return setting.name == name || setting.alias == name; });
  return found == chat_settings().end() || name.empty() ? nullptr : &*found;
}

}  // namespace

const std::vector<ChatSetting>& chat_settings() {
  static const std::vector<ChatSetting> settings = [] {
    std::vector<ChatSetting> all;
    for (const SamplingField& field : sampling_fields()) all.push_back(sampling_setting(field));
    all.push_back(seed_setting());
    all.push_back(length_setting(
        "max_tokens", [](ChatOptions& options) -> int& { return options.max_tokens; }, 0, "num_predict"));
    all.push_back(think_setting());
    all.push_back(length_setting(
        "think_budget", [](ChatOptions& options) -> int& { return options.thinking.budget; }, -1));
    return all;
  }();
  return settings;
}

Status set_chat_setting(const std::string& name, const std::string& value, ChatOptions& options) {
  if (const ChatSetting* const setting = find_setting(name)) return setting->set(options, value);
  constexpr std::array<std::string_view, 3> kContext = {"num_ctx", "context", "ctx_size"};
  if (std::ranges::find(kContext, setting_name(name)) != kContext.end()) {
    return fail(ErrorCode::invalid_input, "the context length is chosen at the start: zinc chat -c N");
  }
  std::vector<std::string> names;
  std::string list;
  for (const ChatSetting& setting : chat_settings()) {
    names.emplace_back(setting.name);
    list += fmt::format("{}{}", list.empty() ? "" : ", ", setting.name);
  }
  const std::optional<std::string> nearest = nearest_name(setting_name(name), names);
  return fail(ErrorCode::invalid_input, "unknown setting '{}'; {}", name,
              nearest ? fmt::format("did you mean {}?", *nearest) : fmt::format("available: {}", list));
}

std::string chat_settings_text(const ChatOptions& options, const SamplingParams& sampling) {
  std::string text;
  for (const ChatSetting& setting : chat_settings()) {
    text += fmt::format("{:<20}{}{}\n", setting.name, setting.effective(options, sampling),
                        setting.given(options).empty() ? "  (default)" : "");
  }
  return text;
}

std::vector<std::string_view> parsed_settings(const CLI::App& app) {
  std::vector<std::string_view> out;
  for (const CLI::Option* option : app.get_options()) {
    if (option->count() == 0) continue;
    for (const std::string& name : option->get_lnames()) {
      if (const ChatSetting* const setting = find_setting(name == "no-think" ? "think" : name))
        out.push_back(setting->name);
    }
  }
  return out;
}

json::object given_settings(const ChatOptions& options) {
  json::object out;
  for (const ChatSetting& setting : chat_settings()) {
    if (const std::string value = setting.given(options); !value.empty()) out[setting.name] = value;
  }
  return out;
}

void set_missing_settings(const json::object& stored, const std::vector<std::string_view>& parsed,
                          ChatOptions& options) {
  for (const ChatSetting& setting : chat_settings()) {
    const json::value* const value = stored.if_contains(setting.name);
    const bool is_parsed = std::ranges::find(parsed, setting.name) != parsed.end();
    if (!value || !value->is_string() || is_parsed) continue;
    ChatOptions changed = options;
    const bool is_valid = setting.set(changed, std::string(value->get_string())).ok() && changed.sampling.check().ok();
    if (is_valid) options = std::move(changed);
  }
}

}  // namespace zinc
