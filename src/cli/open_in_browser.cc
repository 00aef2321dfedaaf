#include "cli/open_in_browser.h"

#include <thread>

#include "base/subprocess.h"
#include "cli/output.h"

namespace zinc {

void open_in_browser(const std::string& url) {
  // On its own thread: on some desktops xdg-open runs until the browser is closed.
  std::thread([url] {
    const Result<ProcessResult> end = run_process({.argv = {"xdg-open", url}});
    if (!end.ok() || end.value().exit_code != 0) print_stderr("zinc: no browser could be opened; open " + url);
  }).detach();
}

}  // namespace zinc
