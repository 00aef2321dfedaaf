#include "cli/terminal.h"

#include <unistd.h>

#include <cstdlib>
#include <string_view>

namespace zinc {

bool is_dumb_terminal() {
  const char* const kind = std::getenv("TERM");
  return !kind || *kind == '\0' || std::string_view(kind) == "dumb";
}

bool shows_colours(int stream) {
  const char* const unwanted = std::getenv("NO_COLOR");
  return (!unwanted || *unwanted == '\0') && !is_dumb_terminal() && ::isatty(stream);
}

}  // namespace zinc
