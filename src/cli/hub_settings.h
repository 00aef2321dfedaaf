// Reads HubSettings from the environment. The only file that knows the names of the variables.
#pragma once

#include "hub/settings.h"

namespace zinc {

// For data that can be downloaded again: $XDG_CACHE_HOME/zinc, else ~/.cache/zinc.
Result<std::filesystem::path> cache_folder();

// For state that cannot be restored, such as conversations: $XDG_STATE_HOME/zinc, else ~/.local/state/zinc.
Result<std::filesystem::path> state_folder();

Result<HubSettings> hub_settings();

// The package index settings of a pip.conf.
struct PipConf {
  std::string index_url;   // without a trailing slash; empty: not set
  bool needs_pip = false;  // it has more than an index: find-links, extra-index-url, no-index
};
PipConf read_pip_conf(std::string_view text);

}  // namespace zinc
