// `zinc serve MODEL --open` for other commands: serves on the usual address, opens the chat page and runs until Ctrl-C.
#pragma once

#include <string>

#include "base/result.h"

namespace zinc {

// An empty name is the default model.
Status serve_page(const std::string& model);

}  // namespace zinc
