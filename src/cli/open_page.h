// Opens a page in the user's browser, as the desktop does it. Best effort: where there is no desktop, the address that
// was printed has to do.
#pragma once

#include <string>

namespace zinc {

void open_page(const std::string& url);

}  // namespace zinc
