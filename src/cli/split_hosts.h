// --split-hosts: the command runs in the process of rank 0 and uses the devices of all ranks; the other processes only
// run their device.
#pragma once

#include <CLI/CLI.hpp>

#include <functional>
#include <string_view>

#include "base/result.h"

namespace zinc {

inline constexpr std::string_view kSplitHostsOption = "--split-hosts";

bool is_split_over_hosts(const CLI::App& app);  // the parsed command has the option
// Joins the other processes, then runs the command or, above rank 0, the device. A lost process is an error.
Status run_split_over_hosts(const std::function<Status()>& command);

}  // namespace zinc
