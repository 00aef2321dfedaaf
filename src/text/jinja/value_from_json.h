// Converts JSON to template values. Strings are not copied: the JSON must outlive the rendering.
#pragma once

#include "base/json.h"
#include "text/jinja/runtime.h"

namespace zinc::jinja {

Value value_from_json(Runtime& rt, const json::value& json, bool from_input);

}  // namespace zinc::jinja
