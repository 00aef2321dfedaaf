#include "text/jinja/sequence_ops.h"

#include <algorithm>
#include <charconv>
#include <numeric>

#include "text/jinja/operators.h"
#include "text/jinja/text_ops.h"

namespace zinc::jinja {
namespace {

Value path_part(Runtime& rt, const Text& path, size_t begin, size_t end) {
  const std::string_view part = path.bytes.substr(begin, end - begin);
  int64_t index = 0;
  const auto parsed = std::from_chars(part.data(), part.data() + part.size(), index);
  const bool is_index =
      !part.empty() && part[0] != '-' && parsed.ec == std::errc() && parsed.ptr == part.data() + part.size();
  return is_index ? Value(index) : slice_text(rt, path, begin, end);
}

// Merges the sorted halves from[begin..middle) and from[middle..end) into `to`.
template <class Less>
void merge_halves(const std::vector<size_t>& from, std::vector<size_t>& to, size_t begin, size_t middle, size_t end,
                  Less&& is_less) {
  size_t left = begin, right = middle;
  for (size_t at = begin; at < end; ++at) {
    const bool takes_right = left == middle || (right < end && is_less(from[right], from[left]));
    to[at] = takes_right ? from[right++] : from[left++];
  }
}

}  // namespace

AttributePath::AttributePath(Runtime& rt, const Value& path) {
  if (path.is(Kind::none) || path.is(Kind::missing)) return;
  if (!path.is(Kind::text)) {
    parts_.push_back(path);
    return;
  }
  const std::string_view bytes = path.text->bytes;
  rt.charge(bytes.size() / kBytesPerStep);
  for (size_t begin = 0; begin <= bytes.size() && rt.charge(1);) {
    const size_t end = std::min(bytes.find('.', begin), bytes.size());
    parts_.push_back(path_part(rt, *path.text, begin, end));
    begin = end + 1;
  }
}

Value AttributePath::get(Runtime& rt, Value item, const Value& fallback) const {
  for (const Value& part : parts_) {
    if (!rt.charge(1)) return Value();
    item = get_item(rt, item, part);
    if (item.is(Kind::undefined) && !fallback.is(Kind::missing) && !fallback.is(Kind::none)) item = fallback;
  }
  return item;
}

std::vector<Value> collect(Runtime& rt, const Value& value) {
  Items items;
  std::vector<Value> values;
  if (!items_of(rt, value, items) || !rt.check_size(items.size(), sizeof(Value))) return values;
  values.reserve(items.size());
  for (size_t i = 0; i < items.size() && rt.charge(1); ++i) values.push_back(items[i]);
  return values;
}

Value without_case(Runtime& rt, const Value& value) {
  return value.is(Kind::text) ? to_case(rt, *value.text, Case::lower) : value;
}

std::vector<size_t> sorted_order(Runtime& rt, const std::vector<Value>& keys, bool is_reverse) {
  // Not std::sort: the comparison may not be a strict weak order (NaN, failed comparisons).
  const auto is_less = [&](size_t a, size_t b) {
    if (!rt.charge(1)) return false;
    return is_reverse ? less(rt, keys[b], keys[a]) : less(rt, keys[a], keys[b]);
  };
  std::vector<size_t> order(keys.size()), merged(keys.size());
  std::iota(order.begin(), order.end(), size_t{0});
  for (size_t width = 1; width < keys.size() && !rt.failed(); width *= 2) {
    for (size_t begin = 0; begin < keys.size(); begin += 2 * width) {
      merge_halves(order, merged, begin, std::min(begin + width, keys.size()), std::min(begin + 2 * width, keys.size()),
                   is_less);
    }
    order.swap(merged);
  }
  return order;
}

}  // namespace zinc::jinja
