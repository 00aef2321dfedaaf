#include "cli/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

namespace zinc {

int terminal_width(int stream) {
  winsize size{};
  return ::isatty(stream) == 1 && ::ioctl(stream, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

bool is_dumb_terminal() {
  const char* const kind = std::getenv("TERM");
  return !kind || *kind == '\0' || std::string_view(kind) == "dumb";
}

bool shows_colors(int stream) {
  const auto is_set = [](const char* name) {
    const char* const value = std::getenv(name);
    return value && *value != '\0';
  };
  if (is_set("NO_COLOR")) return false;
  const char* const forced = std::getenv("FORCE_COLOR");
  if (forced && std::string_view(forced) == "0") return false;
  return is_set("FORCE_COLOR") || (!is_dumb_terminal() && ::isatty(stream));
}

}  // namespace zinc
