// Random ids. Event-loop thread and worker thread; not for secrets.
#pragma once

#include <cstdint>
#include <string>

namespace zinc {

uint64_t random_number();
std::string random_id();       // 24 hexadecimal digits
std::string random_call_id();  // 9 letters and digits, as the strictest chat templates require

}  // namespace zinc
