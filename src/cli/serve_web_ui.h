// `zinc serve MODEL --open` for other commands: serves on the default address, opens the web UI and runs until Ctrl-C.
#pragma once

#include <string>

#include "base/result.h"

namespace zinc {

// An empty name is the default model.
Status serve_web_ui(const std::string& model);

}  // namespace zinc
