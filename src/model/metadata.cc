#include "model/metadata.h"

#include <cmath>
#include <limits>

namespace zinc {

Metadata::Metadata(const GgufFile& file, std::string_view architecture) : file_(file), architecture_(architecture) {}

bool Metadata::has(std::string_view key) const { return file_.find(full_key(key)) != nullptr; }

void Metadata::fail_with(Error error) {
  if (status_.ok()) status_ = std::move(error);
}

int64_t Metadata::checked(std::string_view key, int64_t value, int64_t smallest) {
  if (value < smallest || value > std::numeric_limits<int>::max()) {
    fail_with(fail(ErrorCode::invalid_input, "{}: metadata '{}' is {}, expected {} to {}", file_.name(), full_key(key),
                   value, smallest, std::numeric_limits<int>::max()));
    return 1;
  }
  return value;
}

int64_t Metadata::count(std::string_view key) {
  const Result<int64_t> value = file_.get<int64_t>(full_key(key));
  if (!value.ok()) {
    fail_with(value.error());
    return 1;
  }
  return checked(key, value.value(), 1);
}

int64_t Metadata::count_or(std::string_view key, int64_t fallback) {
  if (!has(key)) return fallback;
  const Result<int64_t> value = file_.get<int64_t>(full_key(key));
  if (!value.ok()) {
    fail_with(value.error());
    return fallback;
  }
  return checked(key, value.value(), 0);
}

float Metadata::real(std::string_view key) {
  const Result<double> value = file_.get<double>(full_key(key));
  if (!value.ok()) {
    fail_with(value.error());
    return 1;
  }
  if (!(std::abs(value.value()) <= std::numeric_limits<float>::max())) {
    fail_with(fail(ErrorCode::invalid_input, "{}: metadata '{}' is not a finite number", file_.name(), full_key(key)));
    return 1;
  }
  return static_cast<float>(value.value());
}

float Metadata::real_or(std::string_view key, float fallback) { return has(key) ? real(key) : fallback; }

std::string Metadata::text_or(std::string_view key, std::string_view fallback) {
  if (!has(key)) return std::string(fallback);
  const Result<std::string_view> value = file_.get<std::string_view>(full_key(key));
  if (!value.ok()) fail_with(value.error());
  return std::string(value.ok() ? value.value() : fallback);
}

std::vector<int64_t> Metadata::per_layer(std::string_view key, int n_layers) {
  const size_t n = static_cast<size_t>(n_layers);
  if (const Result<int64_t> scalar = file_.get<int64_t>(full_key(key)); scalar.ok()) {
    return std::vector<int64_t>(n, checked(key, scalar.value(), 0));
  }
  const Result<std::vector<int64_t>> list = file_.get<std::vector<int64_t>>(full_key(key));
  if (!list.ok()) {
    fail_with(list.error());
    return std::vector<int64_t>(n, 1);
  }
  if (list.value().size() < n) {
    fail_with(fail(ErrorCode::invalid_input, "{}: metadata '{}' has {} values, expected one for each of {} layers",
                   file_.name(), full_key(key), list.value().size(), n_layers));
    return std::vector<int64_t>(n, 1);
  }
  std::vector<int64_t> out;
  for (size_t i = 0; i < n; ++i) out.push_back(checked(key, list.value()[i], 0));
  return out;
}

std::vector<int64_t> Metadata::per_layer_or(std::string_view key, int n_layers, int64_t fallback) {
  return has(key) ? per_layer(key, n_layers) : std::vector<int64_t>(static_cast<size_t>(n_layers), fallback);
}

}  // namespace zinc
