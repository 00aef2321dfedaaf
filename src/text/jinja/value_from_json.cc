#include "text/jinja/value_from_json.h"

#include <limits>

#include "base/utf8.h"

namespace zinc::jinja {
namespace {

bool is_ascii(std::string_view bytes) {  // most texts are, and this is many times faster than decoding them
  unsigned char all = 0;
  for (const char c : bytes) all = static_cast<unsigned char>(all | static_cast<unsigned char>(c));
  return all < 0x80;
}

class Importer {
 public:
  Importer(Runtime& rt, bool from_input) : rt_(rt), from_input_(from_input) {}

  Value take(const json::value& json, int depth) {
    if (depth > kMaxValueDepth) return rt_.fail("the input is nested too deeply: more than {} levels", kMaxValueDepth);
    if (rt_.failed()) return Value();
    switch (json.kind()) {
      case json::kind::string:
        return Value(take_text(json.get_string()));
      case json::kind::array:
        return take_list(json.get_array(), depth);
      case json::kind::object:
        return take_dict(json.get_object(), depth);
      default:
        rt_.allow_input(sizeof(Value));
        return take_plain(json);
    }
  }

 private:
  static Value take_plain(const json::value& json) {
    switch (json.kind()) {
      case json::kind::bool_:
        return Value(json.get_bool());
      case json::kind::int64:
        return Value(json.get_int64());
      case json::kind::uint64:
        return take_unsigned(json.get_uint64());
      case json::kind::double_:
        return Value(json.get_double());
      default:
        return Value::none();
    }
  }

  static Value take_unsigned(uint64_t number) {
    if (number <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return Value(static_cast<int64_t>(number));
    }
    Value value;
    value.kind = Kind::big_integer;
    value.big_integer = number;
    return value;
  }

  const Text* take_text(std::string_view bytes) {
    rt_.allow_input(bytes.size());
    if (!is_ascii(bytes) && !is_valid_utf8(bytes)) bytes = rt_.arena().copy(replace_invalid_utf8(bytes));
    return rt_.arena().make<Text>(bytes, std::span<const Run>{}, from_input_);
  }

  Value take_list(const json::array& array, int depth) {
    rt_.allow_input(array.size() * sizeof(Value));
    const std::span<Value> items = rt_.arena().array<Value>(array.size());
    for (size_t i = 0; i < items.size(); ++i) items[i] = take(array[i], depth + 1);
    return Value::make_list(rt_.arena().make<List>(items, from_input_));
  }

  Value take_dict(const json::object& object, int depth) {
    rt_.allow_input(object.size() * sizeof(Entry));
    const std::span<Entry> entries = rt_.arena().array<Entry>(object.size());
    size_t i = 0;
    for (const json::key_value_pair& member : object) {
      entries[i++] = {Value(take_text(member.key())), take(member.value(), depth + 1)};
    }
    return Value(make_dict(rt_, entries, from_input_));
  }

  Runtime& rt_;
  const bool from_input_;
};

}  // namespace

Value value_from_json(Runtime& rt, const json::value& json, bool from_input) {
  return Importer(rt, from_input).take(json, 0);
}

}  // namespace zinc::jinja
