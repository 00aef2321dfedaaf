// Where this user's models are kept and fetched from, read from the environment. The only place that knows the names of
// the variables.
#pragma once

#include "hub/settings.h"

namespace zinc {

// Where zinc keeps what it can fetch again: $XDG_CACHE_HOME/zinc, else ~/.cache/zinc.
Result<std::filesystem::path> cache_folder();

// Where zinc keeps what is nobody's data but cannot be fetched again, such as the history of questions:
// $XDG_STATE_HOME/zinc, else ~/.local/state/zinc.
Result<std::filesystem::path> state_folder();

Result<HubSettings> hub_settings();

// What a pip.conf says of where packages are.
struct PipConf {
  std::string index_url;   // without a slash at the end; empty: it names none
  bool says_more = false;  // other places than an index, or none
};
PipConf read_pip_conf(std::string_view text);

}  // namespace zinc
