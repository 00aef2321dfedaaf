// The settings of a chat: sampling, lengths and thinking, by the names of their command-line options ("top_k",
// "--top-k"). Used by /set, by Tab, and to keep them with a conversation. Plain data; one thread.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "cli/model_options.h"
#include "cli/sampling_options.h"
#include "cli/thinking_options.h"
#include "engine/speculation_options.h"

namespace zinc {

struct ChatOptions {
  ModelOptions model;
  SamplingOptions sampling;
  int context = 0;
  int max_tokens = 0;  // per answer; 0: until the context is full
  ThinkingOptions thinking;
  SpeculationOptions speculation = {};
};

struct ChatSetting {
  std::string_view name, alias = {};  // with underscores
  std::function<Status(ChatOptions&, const std::string& value)> set;
  std::function<std::string(const ChatOptions&)> given;  // the value that was set; empty: none
  // The value in effect; `sampling`: with the model's recommended values.
  std::function<std::string(const ChatOptions&, const SamplingParams& sampling)> effective;
};

const std::vector<ChatSetting>& chat_settings();

// Sets one by name; "default" removes the value. Checks the number, not its range (graph/sampling_params.h). The error
// lists the names.
Status set_chat_setting(const std::string& name, const std::string& value, ChatOptions& options);

// "temp              0.7  (default)", one line for each setting.
std::string chat_settings_text(const ChatOptions& options, const SamplingParams& sampling);

// The names of the settings that the parsed command line has, also those with their default value.
std::vector<std::string_view> parsed_settings(const CLI::App& app);

// The values that were set, for set_missing_settings().
json::object given_settings(const ChatOptions& options);
// Sets the stored values of settings that are not among `parsed`. Unknown names and invalid values are ignored: the
// file may come from another version.
void set_missing_settings(const json::object& stored, const std::vector<std::string_view>& parsed,
                          ChatOptions& options);

}  // namespace zinc
