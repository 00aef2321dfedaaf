// The report of `zinc check`: lines with OK, WARN, FAIL or SKIP and a command that helps, and the figures behind them.
// Reads and briefly measures; changes nothing.
#pragma once

#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/json.h"
#include "engine/model_instance.h"
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
  std::string hint = {};  // the remedy, if possible a command
};

struct CheckOptions {
  std::string model;  // as typed; empty: the default model, if installed
  int64_t context = 4096;
  LoadOptions load = {};  // the devices and the placement that the user wants
};

enum class GpuVendor : uint8_t { nvidia, amd, intel, other };

class CheckReport {
 public:
  void add(CheckLine line) { lines_.push_back(std::move(line)); }
  const std::vector<CheckLine>& lines() const { return lines_; }
  CheckStatus verdict() const;  // the worst status
  size_t count(CheckStatus status) const;

  json::object machine, model;  // figures; `model` is empty without a model
  json::array backends;
  std::set<GpuVendor> gpus;     // found in the system
  double read_bytes_per_s = 0;  // of the default backend's device
  DeviceInfo device;            // the default backend's

  json::object to_json() const;                               // docs/check.schema.json
  std::string to_text(bool has_colors, int width = 0) const;  // `width`: of the terminal; 0: lines are not wrapped

 private:
  std::vector<CheckLine> lines_;
};

void check_machine(CheckReport& report);
// GPUs of the system, used by a backend or not, and settings known to slow them down. `root` contains /sys and /proc.
void check_gpus(CheckReport& report, const std::filesystem::path& root);
void check_backends(CheckReport& report);  // opens each, measures the default one
// The line of an unavailable backend: a warning if the system has a GPU for it.
CheckLine unusable_line(std::string_view backend, const std::string& why, const std::set<GpuVendor>& gpus);
// The line of a device; skipped if the device or its backend is not available.
CheckLine device_line(std::string name, const DeviceInfo& device, bool is_backend_usable);
void check_driver(CheckReport& report, const DeviceInfo& device);  // known issues of Mesa's AMD driver
// Installed models; none is a warning unless a model `is_named`.
void check_models(CheckReport& report, const HubSettings& settings, bool is_named);
// Whether the model fits and how it runs on `backend`. REQUIRES: report.device is that backend's device.
void check_model(CheckReport& report, const HubSettings& settings, const CheckOptions& options,
                 const BackendInfo& backend);

}  // namespace zinc
