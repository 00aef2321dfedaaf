// Opens a URL in the user's browser through xdg-open. Without a desktop or a browser it says so on
// standard error.
#pragma once

#include <string>

namespace zinc {

void open_in_browser(const std::string& url);

}  // namespace zinc
