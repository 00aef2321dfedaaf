// `zinc inspect FILE [--json]`: metadata and tensors of a GGUF file, without loading it.
#include <fmt/core.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/sanitize_for_terminal.h"
#include "base/utf8.h"
#include "cli/command.h"
#include "cli/model_file.h"
#include "cli/natural_order.h"
#include "gguf/gguf_file.h"
#include "hub/inventory.h"

namespace zinc::command_inspect {
namespace {

constexpr uint64_t kShownElems = 8;  // of a metadata array
constexpr size_t kShownBytes = 72;   // of a string in the human view
constexpr size_t kMaxNameWidth = 48;

struct TypeTotals {
  uint64_t n_tensors = 0, n_elems = 0, n_bytes = 0;

  double bits_per_weight() const {
    return n_elems == 0 ? 0 : 8 * static_cast<double>(n_bytes) / static_cast<double>(n_elems);
  }
};

struct Totals {
  TypeTotals all;
  std::map<std::string_view, TypeTotals> by_type;
};

Totals add_up(const GgufFile& file) {
  Totals totals;
  for (const GgufTensor& tensor : file.tensors()) {
    for (TypeTotals* sum : {&totals.all, &totals.by_type[tensor.view.format->name]}) {
      sum->n_tensors += 1;
      sum->n_elems += static_cast<uint64_t>(tensor.view.shape.elems());
      sum->n_bytes += tensor.view.bytes.size();
    }
  }
  return totals;
}

// 1234567 with the units "", "K", ... of `step` is "1.2 M".
std::string with_unit(uint64_t number, double step, std::string_view suffix) {
  static constexpr std::string_view kUnits = " KMGTPE";
  double scaled = static_cast<double>(number);
  size_t unit = 0;
  for (; scaled >= step && unit + 1 < kUnits.size(); ++unit) scaled /= step;
  if (unit == 0) return fmt::format("{} {}", number, suffix);
  return fmt::format("{:.2f} {}{}", scaled, kUnits[unit], suffix);
}

std::string text_of(const GgufValue& value);

std::string text_of(const GgufArray& array) {
  std::vector<std::string> parts;
  for (const GgufValue& element : array.first(kShownElems)) parts.push_back(text_of(element));
  if (array.size() > parts.size()) parts.push_back("...");
  return fmt::format("[{}]", fmt::join(parts, ", "));
}

std::string text_of(const GgufValue& value) {
  struct Visitor {
    std::string operator()(int64_t v) const { return fmt::format("{}", v); }
    std::string operator()(uint64_t v) const { return fmt::format("{}", v); }
    std::string operator()(double v) const { return fmt::format("{:.7g}", v); }
    std::string operator()(bool v) const { return fmt::format("{}", v); }
    std::string operator()(std::string_view v) const {
      return fmt::format("'{}'", sanitize_for_terminal(v, kShownBytes));
    }
    std::string operator()(const GgufArray& v) const { return text_of(v); }
  };
  return std::visit(Visitor{}, value.data);
}

std::string type_of(const GgufValue& value) {
  const GgufArray* array = std::get_if<GgufArray>(&value.data);
  if (!array) return std::string(to_string(value.type));
  return fmt::format("{}[{}]", to_string(array->type()), array->size());
}

size_t width_of(size_t longest) { return std::min(longest, kMaxNameWidth); }

void print_metadata(const GgufFile& file) {
  size_t key_width = 0, type_width = 0;
  for (const auto& [key, value] : file.metadata()) {
    key_width = std::max(key_width, key.size());
    type_width = std::max(type_width, type_of(value).size());
  }
  fmt::print("\nmetadata: {} keys\n", file.metadata().size());
  for (const auto& [key, value] : file.metadata()) {
    fmt::print("  {:<{}}  {:<{}}  {}\n", sanitize_for_terminal(key), width_of(key_width), type_of(value), type_width,
               text_of(value));
  }
}

void print_types(const Totals& totals) {
  fmt::print("\ntensor types\n");
  for (const auto& [type, sum] : totals.by_type) {
    fmt::print("  {:<8} {:>6} tensors  {:>14}  {:>12}\n", type, sum.n_tensors, with_unit(sum.n_elems, 1000, ""),
               human_bytes(sum.n_bytes));
  }
}

void print_tensors(const GgufFile& file) {
  const bool is_split = file.shard_names().size() > 1;
  size_t name_width = 0, shape_width = 0;
  for (const GgufTensor& tensor : file.tensors()) {
    name_width = std::max(name_width, tensor.name.size());
    shape_width = std::max(shape_width, tensor.view.shape.to_string().size());
  }
  fmt::print("\ntensors: {} (name, type, shape with the row length last, offset, bytes)\n", file.tensors().size());
  std::vector<const GgufTensor*> sorted;
  for (const GgufTensor& tensor : file.tensors()) sorted.push_back(&tensor);
  std::ranges::stable_sort(sorted, natural_less, &GgufTensor::name);
  for (const GgufTensor* const entry : sorted) {
    const GgufTensor& tensor = *entry;
    fmt::print("  {:<{}}  {:<7}  {:<{}}  {:>12}  {:>12}", sanitize_for_terminal(tensor.name), width_of(name_width),
               tensor.view.format->name, tensor.view.shape.to_string(), shape_width, tensor.offset,
               tensor.view.bytes.size());
    if (is_split) fmt::print("  shard {}", tensor.shard + 1);
    fmt::print("\n");
  }
}

void print_human(const GgufFile& file, bool with_tensors) {
  const Totals totals = add_up(file);
  const auto text = [&](std::string_view key) { return file.get_or<std::string_view>(key, "(not given)"); };
  fmt::print("{}\n", file.name());
  fmt::print("  name             {}\n", sanitize_for_terminal(text("general.name")));
  fmt::print("  architecture     {}\n", sanitize_for_terminal(text("general.architecture")));
  fmt::print("  parameters       {} ({})\n", totals.all.n_elems, with_unit(totals.all.n_elems, 1000, ""));
  fmt::print("  file size        {} bytes ({}){}\n", file.file_bytes(), human_bytes(file.file_bytes()),
             file.shard_names().size() > 1 ? fmt::format(" in {} shards", file.shard_names().size()) : "");
  fmt::print("  bits per weight  {:.3f}\n", totals.all.bits_per_weight());
  print_metadata(file);
  print_types(totals);
  if (with_tensors) return print_tensors(file);
  fmt::print("\n`--tensors` lists the {} tensors\n", file.tensors().size());
}

json::object json_of(const GgufArray& array);

json::value json_of(const GgufValue& value) {
  struct Visitor {
    json::value operator()(int64_t v) const { return v; }
    json::value operator()(uint64_t v) const { return v; }
    json::value operator()(bool v) const { return v; }
    json::value operator()(std::string_view v) const { return json::string(replace_invalid_utf8(v)); }
    json::value operator()(double v) const {  // JSON has no infinity and no NaN
      return std::isfinite(v) ? json::value(v) : json::value(fmt::format("{}", v));
    }
    json::value operator()(const GgufArray& v) const { return json_of(v); }
  };
  return std::visit(Visitor{}, value.data);
}

json::object json_of(const GgufArray& array) {
  json::array first;
  for (const GgufValue& element : array.first(kShownElems)) first.push_back(json_of(element));
  return {{"type", "array"},
          {"element_type", to_string(array.type())},
          {"length", array.size()},
          {"first", std::move(first)}};
}

json::object json_of_entry(const GgufValue& value) {
  if (const GgufArray* array = std::get_if<GgufArray>(&value.data)) return json_of(*array);
  return {{"type", to_string(value.type)}, {"value", json_of(value)}};
}

json::object json_of(const GgufTensor& tensor) {
  json::array shape;
  for (int i = 0; i < tensor.view.shape.n_dims(); ++i) shape.push_back(tensor.view.shape[i]);
  return {{"name", replace_invalid_utf8(tensor.name)},
          {"type", tensor.view.format->name},
          {"shape", std::move(shape)},
          {"offset", tensor.offset},
          {"bytes", tensor.view.bytes.size()},
          {"shard", tensor.shard}};
}

json::object json_of(const TypeTotals& sum) {
  return {{"tensors", sum.n_tensors},
          {"parameters", sum.n_elems},
          {"bytes", sum.n_bytes},
          {"bits_per_weight", sum.bits_per_weight()}};
}

json::object json_of(const GgufFile& file) {
  const Totals totals = add_up(file);
  json::object metadata, types;
  json::array shards, tensors;
  for (const auto& [key, value] : file.metadata()) metadata[replace_invalid_utf8(key)] = json_of_entry(value);
  for (const auto& [type, sum] : totals.by_type) types[type] = json_of(sum);
  for (const std::string& shard : file.shard_names()) shards.push_back(json::string(replace_invalid_utf8(shard)));
  for (const GgufTensor& tensor : file.tensors()) tensors.push_back(json_of(tensor));
  const auto text = [&](std::string_view key) {
    const Result<std::string_view> found = file.get<std::string_view>(key);
    return found.ok() ? json::value(json::string(replace_invalid_utf8(found.value()))) : json::value();
  };
  return {{"name", text("general.name")},    {"architecture", text("general.architecture")},
          {"file_bytes", file.file_bytes()}, {"shards", std::move(shards)},
          {"total", json_of(totals.all)},    {"types", std::move(types)},
          {"metadata", std::move(metadata)}, {"tensors", std::move(tensors)}};
}

struct Options {
  std::string file;
  bool as_json = false, with_tensors = false;
};

Status inspect(const Options& options) {
  ZINC_TRY(path, model_file(options.file));
  ZINC_TRY(file, GgufFile::open(path));
  if (options.as_json) {
    fmt::print("{}\n", to_pretty_json(json_of(file)));
  } else {
    print_human(file, options.with_tensors);
  }
  return ok_status();
}

std::function<Status()> declare(CLI::App& app) {
  auto options = std::make_shared<Options>();
  app.add_option("model", options->file, kOptionalModelHelp + "; for a split model, its first file");
  CLI::Option* const json = app.add_flag("--json", options->as_json, "print JSON, with all tensors");
  app.add_flag("--tensors", options->with_tensors, "also list the tensors")->excludes(json);
  return [options] { return inspect(*options); };
}

}  // namespace

extern const Command k_command_inspect = {
    .path = "inspect", .summary = "show the metadata and tensors of a GGUF file", .declare = declare};

}  // namespace zinc::command_inspect
