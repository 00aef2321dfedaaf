// Named weights in memory, for graphs that tests build by hand. Views stay valid during the set's lifetime.
#pragma once

#include <cstring>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "graph/graph_builder.h"

namespace zinc {

class WeightSet {
 public:
  // Zeros.
  WeightSet& add(std::string_view name, const Shape& shape, const Format& format = k_f32) {
    return add_blocks(name, shape, format, std::vector<std::byte>(bytes_of(shape, format)));
  }
  // `values` as f32.
  WeightSet& add(std::string_view name, const Shape& shape, std::span<const float> values) {
    const std::span<const std::byte> bytes = std::as_bytes(values);
    return add_blocks(name, shape, k_f32, std::vector<std::byte>(bytes.begin(), bytes.end()));
  }
  WeightSet& add_blocks(std::string_view name, const Shape& shape, const Format& format, std::vector<std::byte> bytes) {
    ZINC_CHECK(bytes.size() == bytes_of(shape, format));
    Entry& entry = entries_[std::string(name)];
    entry.bytes = std::move(bytes);
    entry.view = {&format, shape, entry.bytes};
    return *this;
  }

  const TensorView* find(std::string_view name) const {
    const auto entry = entries_.find(name);
    return entry == entries_.end() ? nullptr : &entry->second.view;
  }
  WeightSource source() const {
    return [this](std::string_view name) { return find(name); };
  }

 private:
  struct Entry {
    std::vector<std::byte> bytes;
    TensorView view;
  };
  static size_t bytes_of(const Shape& shape, const Format& format) {
    return row_bytes(format, static_cast<size_t>(shape.elems()));
  }
  std::map<std::string, Entry, std::less<>> entries_;
};

}  // namespace zinc
