// What `zinc check` finds out: lines that say OK, WARN, FAIL or SKIP with the command that helps, and the figures
// behind them. Looks, measures for a moment, changes nothing.
#pragma once

#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/json.h"
#include "hub/settings.h"

namespace zinc {

enum class CheckStatus : uint8_t {
  skip,  // does not apply here
  ok,
  warn,
  fail,
};
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

enum class GpuMaker : uint8_t { nvidia, amd, intel, other };

class CheckReport {
 public:
  void add(CheckLine line) { lines_.push_back(std::move(line)); }
  const std::vector<CheckLine>& lines() const { return lines_; }
  CheckStatus verdict() const;  // the worst of them
  size_t count(CheckStatus status) const;

  json::object machine, model;  // figures; the model's are empty where there is none
  json::array backends;
  std::set<GpuMaker> gpus;      // that the system has
  double read_bytes_per_s = 0;  // of the default backend's device
  DeviceInfo device;            // likewise

  json::object to_json() const;  // docs/check.schema.json
  std::string to_text(bool has_colours) const;

 private:
  std::vector<CheckLine> lines_;
};

void check_machine(CheckReport& report);
// What the system has, whether or not a backend uses it, and what is known to slow it down. `root` is where /sys and
// /proc are.
void check_gpus(CheckReport& report, const std::filesystem::path& root);
void check_backends(CheckReport& report);  // opens each, and measures the default one
// The line of a backend that cannot be used: a warning where the system has a GPU for it.
CheckLine unusable_line(std::string_view backend, const std::string& why, const std::set<GpuMaker>& gpus);
void check_driver(CheckReport& report, const DeviceInfo& device);  // what is known of Mesa's for AMD cards
// What is in zinc's keeping; that it is nothing is worth a warning unless a model `is_named`.
void check_models(CheckReport& report, const HubSettings& settings, bool is_named);
// Whether the model fits, and how it runs, on `backend`, whose device is the report's.
void check_model(CheckReport& report, const HubSettings& settings, const CheckOptions& options,
                 const BackendInfo& backend);

}  // namespace zinc
