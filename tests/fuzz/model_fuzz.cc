// Tiny model files with mutated keys or shapes: read_model returns a graph or an error and never crashes.
// Input: one byte selects the model; then records of 10 bytes: key or tensor, kind of mutation, a number.
#include <cstdint>
#include <cstring>
#include <map>

#include "gguf/gguf_file.h"
#include "model/model.h"
#include "tests/support/tiny_model.h"

namespace zinc {
namespace {

constexpr size_t kRecordBytes = 10, kMaxRecords = 8;

struct Subject {
  TinyModel model;
  std::vector<TinyTensor> tensors;
};

const Subject& subject(size_t index) {
  static std::map<size_t, Subject> cache;
  const auto [entry, is_new] = cache.try_emplace(index);
  if (is_new) {
    entry->second.model = tiny_models()[index];
    entry->second.tensors = find_tensors(entry->second.model).value();
  }
  return entry->second;
}

void change_key(TinyModel& model, size_t index, uint8_t how, uint64_t number) {
  TinyKey& key = model.metadata[index % model.metadata.size()];
  float real = 0;
  std::memcpy(&real, &number, sizeof(real));
  switch (how % 6) {
    case 0:
      key.value = static_cast<int64_t>(number);
      break;
    case 1:
      key.value = static_cast<uint32_t>(number);
      break;
    case 2:
      key.value = real;
      break;
    case 3:
      key.value = std::vector<uint32_t>(number % 9, static_cast<uint32_t>(number >> 8));
      break;
    case 4:
      key.value = std::string("yarn");
      break;
    default:
      key.name += "?";  // same as removed
  }
}

// Sizes stay small: the file contains every element.
void change_tensor(std::vector<TinyTensor>& tensors, size_t index, uint8_t how, uint64_t number) {
  TinyTensor& tensor = tensors[index % tensors.size()];
  if (how % 2 == 0) {
    tensor.name += "?";
    return;
  }
  std::vector<int64_t> dims;
  for (uint64_t i = 0; i < 1 + number % 4; ++i) dims.push_back(1 + static_cast<int64_t>(number >> (8 + 4 * i)) % 16);
  tensor.shape = Shape(dims);
}

}  // namespace
}  // namespace zinc

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace zinc;
  if (size == 0) return 0;
  Subject changed = subject(data[0] % tiny_models().size());
  for (size_t i = 0, at = 1; i < kMaxRecords && at + kRecordBytes <= size; ++i, at += kRecordBytes) {
    uint64_t number = 0;
    std::memcpy(&number, data + at + 2, sizeof(number));
    const size_t index = data[at] / 2;
    if (data[at] % 2 == 0) {
      change_key(changed.model, index, data[at + 1], number);
    } else {
      change_tensor(changed.tensors, index, data[at + 1], number);
    }
  }
  const std::string bytes = make_gguf(changed.model, changed.tensors);
  const Result<GgufFile> file = GgufFile::parse(std::as_bytes(std::span(bytes)), "fuzz.gguf");
  if (file.ok()) static_cast<void>(read_model(file.value(), Draft::load));
  return 0;
}
