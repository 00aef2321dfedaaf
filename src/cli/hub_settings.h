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

// index-url of a pip.conf, without a slash at the end; empty if it names none.
std::string index_url_of(std::string_view pip_conf);

}  // namespace zinc
