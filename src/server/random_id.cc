#include "server/random_id.h"

#include <fmt/format.h>

#include <random>

namespace zinc {

uint64_t random_number() {
  thread_local std::mt19937_64 engine = [] {
    std::random_device device;
    std::seed_seq seed{device(), device(), device(), device()};
    return std::mt19937_64(seed);
  }();
  return engine();
}

std::string random_id() { return fmt::format("{:016x}{:08x}", random_number(), random_number() >> 32); }

std::string replica_id(std::string_view replica) {
  return replica.empty() ? random_id() : fmt::format("{}.{}", replica, random_id());
}

std::string random_call_id() {
  constexpr std::string_view kDigits = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
  constexpr int kLength = 9;
  std::string out;
  uint64_t number = random_number();
  for (int i = 0; i < kLength; ++i, number /= kDigits.size()) out += kDigits[number % kDigits.size()];
  return out;
}

}  // namespace zinc
