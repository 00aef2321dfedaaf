// For commands that take several names: runs `work` for each until one fails. With --json, prints the reports of all
// names that succeeded as a list.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace zinc {

Status for_each_name(const std::vector<std::string>& names, bool as_json,
                     const std::function<Result<json::object>(const std::string& name)>& work);

}  // namespace zinc
