// The catalog's default model, a real one: `zinc run hi` installs it, and the fixture default_model of the tests does.
#pragma once

#include <filesystem>

namespace zinc {

std::filesystem::path default_model_path();  // whether it is installed or not

}  // namespace zinc
