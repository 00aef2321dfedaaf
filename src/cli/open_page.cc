#include "cli/open_page.h"

#include <thread>

#include "base/subprocess.h"

namespace zinc {

void open_page(const std::string& url) {
  // Beside the server: some desktops keep the program until the browser is closed.
  std::thread([url] { (void)run_process({.argv = {"xdg-open", url}}); }).detach();
}

}  // namespace zinc
