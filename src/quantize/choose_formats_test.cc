// The formats that llama.cpp chooses: tests/data/quantize_formats has them for tiny models of every architecture and
// for the shapes of published ones (tests/quantize/record_formats.py).
#include "quantize/choose_formats.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <sstream>

#include "quantize/quantize_plan.h"
#include "tests/support/test_files.h"

namespace zinc {
namespace {

namespace fs = std::filesystem;

const fs::path kData = fs::path(ZINC_SOURCE_DIR) / "tests" / "data";

std::vector<std::string> words_of(const std::string& line, char separator) {
  std::vector<std::string> words;
  std::stringstream stream(line);
  for (std::string word; std::getline(stream, word, separator);) words.push_back(word);
  return words;
}

// "blk.0-2,5.attn_v.weight": blk.0, 1, 2 and 5.
std::vector<std::string> expand(const std::string& group) {
  if (!group.starts_with("blk.")) return {group};
  const size_t at = group.find('.', 4);
  std::vector<std::string> names;
  for (const std::string& range : words_of(group.substr(4, at - 4), ',')) {
    const std::vector<std::string> ends = words_of(range, '-');
    for (int i = std::stoi(ends.front()); i <= std::stoi(ends.back()); ++i) {
      names.push_back(fmt::format("blk.{}{}", i, group.substr(at)));
    }
  }
  return names;
}

using Formats = std::map<std::string, std::string, std::less<>>;  // by tensor

struct RecordedType {
  std::string name;
  bool with = true, without = true;  // an importance matrix
  Formats exceptions;                // from the type's main format
};

// One file of tests/data/quantize_formats.
struct Record {
  std::string file;          // a tiny model; else
  std::string architecture;  // a published one:
  ModelFacts facts{};
  std::map<std::string, Shape, std::less<>> tensors;
  std::vector<std::string> kept;
  std::vector<RecordedType> types;
};

Shape shape_of(const std::string& text) {
  std::vector<int64_t> dims;
  for (const std::string& dim : words_of(text, ',')) dims.push_back(std::stoll(dim));
  return Shape(dims);
}

int64_t fact(const std::string& word) { return std::stoll(word.substr(word.find('=') + 1)); }

Record read_record(const fs::path& path) {
  Record record;
  for (const std::string& line : words_of(contents(path), '\n')) {
    const std::vector<std::string> words = words_of(line, ' ');
    if (words[0] == "file") {
      record.file = words[1];
    } else if (words[0] == "model") {
      record.architecture = words[1];
      record.facts = {.n_layers = fact(words[2]),
                      .n_heads = fact(words[3]),
                      .n_kv_heads = fact(words[4]),
                      .n_experts = fact(words[5])};
    } else if (words[0] == "tensor") {
      for (const std::string& name : expand(words[1])) record.tensors[name] = shape_of(words[2]);
    } else if (words[0] == "keep") {
      for (const std::string& name : expand(words[1])) record.kept.push_back(name);
    } else if (words[0] == "type") {
      const std::string when = words.size() > 2 ? words[2] : "";
      record.types.push_back(
          {.name = words[1], .with = when != "without", .without = when != "with", .exceptions = {}});
    } else {
      for (const std::string& name : expand(words[1])) record.types.back().exceptions[name] = words[0];
    }
  }
  return record;
}

Formats chosen_for_published(const Record& record, const QuantizationType& type, bool has_importance) {
  std::vector<TensorFacts> tensors;
  for (const auto& [name, shape] : record.tensors) tensors.push_back({.name = name, .shape = shape});
  std::ranges::stable_sort(tensors, {}, [](const TensorFacts& t) { return std::pair(layer_of(t.name), t.name); });
  ModelFacts facts = record.facts;
  facts.architecture = record.architecture;
  facts.has_importance = has_importance;
  const std::vector<FormatChoice> choices = choose_formats(type, facts, tensors);
  Formats formats;
  for (size_t i = 0; i < tensors.size(); ++i) {
    formats[std::string(tensors[i].name)] = choices[i].format ? choices[i].format->name : "keep";
  }
  return formats;
}

Formats chosen_for_file(const GgufFile& file, const QuantizationType& type, bool has_importance) {
  const ImportanceMatrix empty;
  const auto plan = plan_quantization(
      file,
      {.type = &type, .importance = has_importance ? &empty : nullptr, .allow_requantize = true, .dry_run = true});
  EXPECT_TRUE(plan.ok()) << plan.error().message;
  Formats formats;
  if (!plan.ok()) return formats;
  for (const PlannedTensor& tensor : plan.value().tensors) {
    formats[std::string(tensor.source->name)] = tensor.format->name;
  }
  return formats;
}

void expect_formats(const Record& record, const RecordedType& recorded, const QuantizationType& type,
                    const Formats& found) {
  std::string differences;
  for (const auto& [name, format] : found) {
    if (std::ranges::find(record.kept, name) != record.kept.end()) {
      if (record.file.empty() && format != "keep") differences += fmt::format("{} is {}, not kept\n", name, format);
      continue;
    }
    const auto exception = recorded.exceptions.find(name);
    const std::string expected = exception == recorded.exceptions.end() ? std::string(type.format) : exception->second;
    if (format != expected) differences += fmt::format("{} is {}, not {}\n", name, format, expected);
  }
  EXPECT_EQ(differences, "") << recorded.name;
}

class ChooseFormatsTest : public testing::TestWithParam<std::string> {};

TEST_P(ChooseFormatsTest, formats_are_those_of_llama_cpp) {
  const Record record = read_record(kData / "quantize_formats" / GetParam());
  std::optional<GgufFile> file;
  if (!record.file.empty()) {
    auto opened = GgufFile::open(kData / "oracle" / "models" / record.file);
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    file = std::move(opened.value());
  }
  ASSERT_FALSE(record.types.empty());
  for (const RecordedType& recorded : record.types) {
    const QuantizationType* const type = find_quantization_type(recorded.name);
    ASSERT_TRUE(type) << recorded.name;
    for (const bool has_importance : {false, true}) {
      if (!(has_importance ? recorded.with : recorded.without)) continue;
      const Formats found =
          file ? chosen_for_file(*file, *type, has_importance) : chosen_for_published(record, *type, has_importance);
      expect_formats(record, recorded, *type, found);
    }
  }
}

std::vector<std::string> record_names() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(kData / "quantize_formats"))
    names.push_back(entry.path().filename().string());
  std::ranges::sort(names);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Models, ChooseFormatsTest, testing::ValuesIn(record_names()), [](const auto& info) {
  std::string name = fs::path(info.param).stem().string();
  std::ranges::replace_if(
      name, [](char c) { return c == '-' || c == '.'; }, '_');
  return name;
});

TEST(QuantizationTypes, names_are_found_in_any_case_and_k_names_mean_the_medium_mix) {
  for (const QuantizationType& type : quantization_types()) EXPECT_EQ(find_quantization_type(type.name), &type);
  EXPECT_EQ(find_quantization_type("Q4_K_M")->name, "q4_k_m");
  EXPECT_EQ(find_quantization_type("q4_k")->name, "q4_k_m");
  EXPECT_EQ(find_quantization_type("Q3_K")->name, "q3_k_m");
  EXPECT_EQ(find_quantization_type("q4_k_x"), nullptr);
}

TEST(QuantizationTypes, every_format_of_a_type_and_of_its_rules_can_be_made) {
  const auto can_make = [](std::string_view name) {
    const Format* const format = find_format(name);
    return format && find_quantizer(*format);
  };
  for (const QuantizationType& type : quantization_types()) {
    if (type.format.empty()) continue;
    EXPECT_TRUE(can_make(type.format)) << type.name;
    EXPECT_TRUE(type.output.empty() || can_make(type.output)) << type.name;
    for (const FormatRule& rule : type.rules) EXPECT_TRUE(can_make(rule.format)) << type.name << " " << rule.format;
  }
}

TEST(ChooseFormats, rows_that_are_not_whole_blocks_get_a_format_with_shorter_blocks) {
  EXPECT_EQ(fitting_format(*find_format("q4_k"), {8, 256}).name, "q4_k");
  EXPECT_EQ(fitting_format(*find_format("q4_k"), {8, 96}).name, "q5_0");
  EXPECT_EQ(fitting_format(*find_format("iq2_s"), {8, 96}).name, "iq4_nl");
  EXPECT_EQ(fitting_format(*find_format("q4_k"), {8, 40}).name, "f16");
  EXPECT_EQ(fitting_format(*find_format("q8_0"), {8, 40}).name, "f16");
}

}  // namespace
}  // namespace zinc
