#include "cli/open_in_browser.h"

#include <thread>

#include "base/subprocess.h"

namespace zinc {

void open_in_browser(const std::string& url) {
  // On its own thread: on some desktops xdg-open runs until the browser is closed.
  std::thread([url] { (void)run_process({.argv = {"xdg-open", url}}); }).detach();
}

}  // namespace zinc
