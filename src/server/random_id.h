// Random ids. Event-loop thread and worker thread; not for secrets.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace zinc {

uint64_t random_number();
std::string random_id();                           // 24 hexadecimal digits
std::string replica_id(std::string_view replica);  // "REPLICA." and a random id; without a replica the random id
std::string random_call_id();                      // 9 letters and digits, as the strictest chat templates require

}  // namespace zinc
