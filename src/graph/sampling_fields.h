// The numeric sampling parameters, one record each: validation, the API's fields, the options of the command line, the
// settings of a chat and the documentation come from here.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "base/json.h"
#include "graph/sampling_params.h"

namespace zinc {

struct SamplingField {
  std::string_view name;   // in the API; the option is --top-k for top_k
  std::string_view alias;  // shorter name of the option; empty: none
  std::variant<float SamplingParams::*, int32_t SamplingParams::*> member;
  double low, high;               // the range, both ends included; the default is that of SamplingParams
  bool is_recommended;            // the default is the value that a model's authors recommend
  std::string_view help;          // "keep the k most likely tokens (0: off)"
  std::string_view meaning = {};  // of special values, for the error of an integer out of range
};

std::span<const SamplingField> sampling_fields();

void copy_field(const SamplingField& field, const SamplingParams& from, SamplingParams& to);
std::string field_text(const SamplingField& field, const SamplingParams& params);  // the value: "0.7"
// The fields with a recommended value and frequency_penalty, by name.
json::object sampling_json(const SamplingParams& params);
std::string range_text(const SamplingField& field);  // "0 to 2", "0 or more"

}  // namespace zinc
