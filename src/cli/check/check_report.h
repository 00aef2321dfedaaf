// What `zinc check` finds out: lines that say OK, WARN or FAIL with the command that helps, and the figures behind
// them. Looks, measures for a moment, changes nothing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "hub/settings.h"

namespace zinc {

enum class CheckStatus : uint8_t { ok, warn, fail };
std::string_view check_status_name(CheckStatus status);  // "ok"

struct CheckLine {
  CheckStatus status = CheckStatus::ok;
  std::string section, name;  // "machine", "memory"
  std::string message;
  std::string hint = {};  // what to do, as a command where there is one
};

struct CheckOptions {
  std::string model;  // as typed; empty: the default model, where it is here
  int64_t context = 4096;
};

class CheckReport {
 public:
  void add(CheckLine line) { lines_.push_back(std::move(line)); }
  const std::vector<CheckLine>& lines() const { return lines_; }
  CheckStatus verdict() const;  // the worst of them

  json::object machine, model;  // figures; the model's are empty where there is none
  json::array backends;
  double read_bytes_per_s = 0;  // of the default backend's device
  size_t device_bytes = 0;

  json::object to_json() const;  // docs/check.schema.json
  std::string to_text(bool has_colours) const;

 private:
  std::vector<CheckLine> lines_;
};

void check_machine(CheckReport& report);
void check_backends(CheckReport& report);  // opens each, and measures those that work
void check_gpus(CheckReport& report);      // what the system has, whether or not a backend uses it
void check_models(CheckReport& report, const HubSettings& settings);
void check_model(CheckReport& report, const HubSettings& settings, const CheckOptions& options);

}  // namespace zinc
