// For commands that take several names: one thing done for each, until one fails. With --json the reports are printed
// as a list, also those of what was done before the failure.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace zinc {

Status report_each(const std::vector<std::string>& names, bool as_json,
                   const std::function<Result<json::object>(const std::string& name)>& work);

}  // namespace zinc
