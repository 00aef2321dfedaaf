#include "gguf/gguf_encoding.h"

#include "base/check.h"

namespace zinc {
namespace {

// Integers were widened when they were read; `type` is their width on disk.
void append_integer(std::string& out, GgufType type, uint64_t value) {
  std::array<char, sizeof(value)> bytes;
  std::memcpy(bytes.data(), &value, sizeof(value));
  out.append(bytes.data(), fixed_bytes(type));
}

}  // namespace

GgufType append_gguf_value(std::string& out, const GgufValue& value) {
  if (const int64_t* integer = std::get_if<int64_t>(&value.data)) {
    append_integer(out, value.type, static_cast<uint64_t>(*integer));
  } else if (const uint64_t* wide = std::get_if<uint64_t>(&value.data)) {
    append_integer(out, value.type, *wide);
  } else if (const double* number = std::get_if<double>(&value.data)) {
    if (value.type == GgufType::f32) {
      append_gguf_number(out, static_cast<float>(*number));
    } else {
      append_gguf_number(out, *number);
    }
  } else if (const bool* flag = std::get_if<bool>(&value.data)) {
    append_gguf_value(out, *flag);
  } else if (const std::string_view* text = std::get_if<std::string_view>(&value.data)) {
    append_gguf_string(out, *text);
  } else {
    const GgufArray& array = std::get<GgufArray>(value.data);
    append_gguf_number(out, static_cast<uint32_t>(array.type()));
    append_gguf_number(out, array.size());
    out.append(reinterpret_cast<const char*>(array.bytes().data()), array.bytes().size());
  }
  return value.type;
}

}  // namespace zinc
