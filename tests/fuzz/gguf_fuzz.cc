// Arbitrary bytes as a GGUF file: parsing succeeds or fails, and all data of a parsed file can be read.
#include <cstdint>
#include <string_view>
#include <vector>

#include "gguf/gguf_file.h"

namespace {

size_t sum = 0;  // keeps the reads from being optimized away

void touch(const zinc::GgufValue& value) {
  if (const auto* text = std::get_if<std::string_view>(&value.data)) {
    for (const char c : *text) sum += static_cast<unsigned char>(c);
  }
  if (const auto* array = std::get_if<zinc::GgufArray>(&value.data)) {
    array->for_each([](const zinc::GgufValue& element) {
      touch(element);
      return true;
    });
  }
  sum += value.type_name().size();
}

template <class T>
void get(const zinc::GgufFile& file, std::string_view key) {
  sum += file.get<T>(key).ok();
}

void touch(const zinc::GgufTensor& tensor) {
  std::vector<float> elems(static_cast<size_t>(tensor.view.shape.elems()));
  tensor.view.format->dequantize(tensor.view.bytes, elems);
  for (const float elem : elems) sum += elem > 0;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto opened = zinc::GgufFile::parse(std::as_bytes(std::span(data, size)), "fuzz");
  if (!opened.ok()) return 0;
  const zinc::GgufFile& file = opened.value();
  for (const auto& [key, value] : file.metadata()) {
    touch(value);
    get<int64_t>(file, key);
    get<double>(file, key);
    get<bool>(file, key);
    get<std::string_view>(file, key);
    get<std::vector<int64_t>>(file, key);
    get<std::vector<double>>(file, key);
    get<std::vector<std::string_view>>(file, key);
  }
  for (const zinc::GgufTensor& tensor : file.tensors()) {
    touch(tensor);
    if (file.find_tensor(tensor.name) != &tensor) __builtin_trap();
  }
  return 0;
}
