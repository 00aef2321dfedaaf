// Names that do not repeat. Event-loop thread and text worker; not for secrets.
#pragma once

#include <cstdint>
#include <string>

namespace zinc {

uint64_t random_number();
std::string random_id();       // 24 hexadecimal digits
std::string random_call_id();  // 9 letters and digits: the form the strictest templates ask for

}  // namespace zinc
