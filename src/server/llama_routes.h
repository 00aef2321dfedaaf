// Facts in the format of llama.cpp's server: /props and /slots.
#pragma once

#include "base/json.h"
#include "server/served_model.h"

namespace zinc {

// Adds the members of llama.cpp's /props: default_generation_settings, total_slots, model_path, chat_template and more.
void add_llama_props(const ServedModel& model, json::object& out);
// GET /slots: one entry per request that a model can run at once. The engine does not bind requests to slots: the first
// ones are the busy ones.
json::array llama_slots(const ModelList& models);

}  // namespace zinc
