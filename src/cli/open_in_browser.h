// Opens a URL in the user's browser through xdg-open. Best effort: without a desktop nothing happens.
#pragma once

#include <string>

namespace zinc {

void open_in_browser(const std::string& url);

}  // namespace zinc
