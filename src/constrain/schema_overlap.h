// Whether JSON schemas exclude each other, so that "oneOf" means the same as "anyOf". A conservative test: types,
// "enum" and "const" are compared, and those of properties that both schemas require (a discriminator).
#pragma once

#include <cstddef>
#include <vector>

#include "base/json.h"

namespace zinc {

// True only if no value satisfies two of the schemas. False also if the comparison needs more steps than are left.
bool are_pairwise_disjoint(const std::vector<const json::value*>& schemas, size_t& n_steps_left);

}  // namespace zinc
