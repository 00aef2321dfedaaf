#include "text/jinja/value_from_json.h"

#include <limits>

#include "base/utf8.h"

namespace zinc::jinja {
namespace {

bool is_ascii(std::string_view bytes) {  // most strings are, and this is many times faster than decoding
  unsigned char all = 0;
  for (const char c : bytes) all = static_cast<unsigned char>(all | static_cast<unsigned char>(c));
  return all < 0x80;
}

class JsonConverter {
 public:
  JsonConverter(Runtime& rt, bool from_input) : rt_(rt), from_input_(from_input) {}

  Value convert(const json::value& json, int depth) {
    if (depth > kMaxValueDepth) return rt_.fail("the input is nested too deeply: more than {} levels", kMaxValueDepth);
    if (rt_.failed()) return Value();
    switch (json.kind()) {
      case json::kind::string:
        return Value(convert_text(json.get_string()));
      case json::kind::array:
        return convert_list(json.get_array(), depth);
      case json::kind::object:
        return convert_dict(json.get_object(), depth);
      default:
        rt_.raise_limits_for_input(sizeof(Value));
        return convert_scalar(json);
    }
  }

 private:
  static Value convert_scalar(const json::value& json) {
    switch (json.kind()) {
      case json::kind::bool_:
        return Value(json.get_bool());
      case json::kind::int64:
        return Value(json.get_int64());
      case json::kind::uint64:
        return convert_unsigned(json.get_uint64());
      case json::kind::double_:
        return Value(json.get_double());
      default:
        return Value::none();
    }
  }

  static Value convert_unsigned(uint64_t number) {
    if (number <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return Value(static_cast<int64_t>(number));
    }
    Value value;
    value.kind = Kind::big_integer;
    value.big_integer = number;
    return value;
  }

  const Text* convert_text(std::string_view bytes) {
    rt_.raise_limits_for_input(bytes.size());
    if (!is_ascii(bytes) && !is_valid_utf8(bytes)) bytes = rt_.arena().copy(replace_invalid_utf8(bytes));
    return rt_.arena().make<Text>(bytes, std::span<const Run>{}, from_input_);
  }

  Value convert_list(const json::array& array, int depth) {
    rt_.raise_limits_for_input(array.size() * sizeof(Value));
    const std::span<Value> items = rt_.arena().array<Value>(array.size());
    for (size_t i = 0; i < items.size(); ++i) items[i] = convert(array[i], depth + 1);
    return Value::make_list(rt_.arena().make<List>(items, from_input_));
  }

  Value convert_dict(const json::object& object, int depth) {
    rt_.raise_limits_for_input(object.size() * sizeof(Entry));
    const std::span<Entry> entries = rt_.arena().array<Entry>(object.size());
    size_t i = 0;
    for (const json::key_value_pair& member : object) {
      entries[i++] = {Value(convert_text(member.key())), convert(member.value(), depth + 1)};
    }
    return Value(make_dict(rt_, entries, from_input_));
  }

  Runtime& rt_;
  const bool from_input_;
};

}  // namespace

Value value_from_json(Runtime& rt, const json::value& json, bool from_input) {
  return JsonConverter(rt, from_input).convert(json, 0);
}

}  // namespace zinc::jinja
