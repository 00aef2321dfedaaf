#include "quantize/quantize_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <regex>
#include <set>

#include "base/pluralize.h"
#include "base/sanitize_for_terminal.h"

namespace zinc {
namespace {

namespace fs = std::filesystem;

constexpr uint32_t kQuantizationVersion = 2;        // of the block layouts
constexpr int64_t kMaxRowElems = int64_t{1} << 26;  // a row is computed at once
constexpr double kBitsWithoutImportance = 4;        // below, a file needs an importance matrix to be good
constexpr std::string_view kCopy = "copy";
// Values that models are trained for: any other model loses nearly everything.
constexpr std::array<std::string_view, 4> kTernary = {"tq1_0", "tq2_0", "q1_0", "q2_0"};

// A whole number, or the first of an array with one per layer.
int64_t first_count(const GgufFile& file, const std::string& key, int64_t fallback) {
  const auto per_layer = file.get_or<std::vector<int64_t>>(key, {});
  return per_layer.empty() ? file.get_or<int64_t>(key, fallback) : per_layer[0];
}

ModelFacts facts_of(const GgufFile& file, const QuantizeOptions& options) {
  const std::string_view architecture = file.get_or<std::string_view>("general.architecture", "");
  const std::string prefix(architecture);
  const int64_t n_heads = first_count(file, prefix + ".attention.head_count", 0);
  return {.architecture = architecture,
          .n_layers = first_count(file, prefix + ".block_count", 0),
          .n_heads = n_heads,
          .n_kv_heads = first_count(file, prefix + ".attention.head_count_kv", n_heads),
          .n_experts = first_count(file, prefix + ".expert_count", 0),
          .has_importance = options.importance != nullptr};
}

class Planner {
 public:
  Planner(const GgufFile& file, const QuantizeOptions& options) : file_(file), options_(options) {}

  Result<QuantizePlan> plan() {
    ZINC_TRY(compiled, compile_overrides());
    choose();
    for (size_t i = 0; i < file_.tensors().size(); ++i) {
      ZINC_TRY(planned, add_tensor(file_.tensors()[i], choices_[i]));
    }
    ZINC_TRY(used, check_overrides());
    make_headers();
    add_warnings();
    return std::move(plan_);
  }

 private:
  Status compile_overrides() {
    for (const FormatOverride& entry : options_.overrides) {
      try {
        patterns_.emplace_back(entry.pattern, std::regex::ECMAScript);
      } catch (const std::regex_error& error) {
        return fail(ErrorCode::invalid_input, "--tensor: '{}' is not a regular expression: {}", entry.pattern,
                    error.what());
      }
    }
    n_matches_.resize(patterns_.size());
    return ok_status();
  }

  // llama.cpp counts the tensors of a role in the order of their layers, or in that of the file if the file stays
  // split.
  void choose() {
    std::vector<const GgufTensor*> order;
    for (const GgufTensor& tensor : file_.tensors()) order.push_back(&tensor);
    if (!options_.keep_split) {
      std::ranges::stable_sort(order, {}, [](const GgufTensor* t) { return std::pair(layer_of(t->name), t->name); });
    }
    std::vector<TensorFacts> facts;
    for (const GgufTensor* tensor : order) facts.push_back({.name = tensor->name, .shape = tensor->view.shape});
    const std::vector<FormatChoice> choices = choose_formats(*options_.type, facts_of(file_, options_), facts);
    choices_.resize(choices.size());
    for (size_t i = 0; i < order.size(); ++i) {
      choices_[static_cast<size_t>(order[i] - file_.tensors().data())] = choices[i];
    }
  }

  FormatChoice overridden(const GgufTensor& tensor, const FormatChoice& choice) {
    for (size_t i = 0; i < patterns_.size(); ++i) {
      if (!std::regex_search(tensor.name.begin(), tensor.name.end(), patterns_[i])) continue;
      ++n_matches_[i];
      const Format* const format = options_.overrides[i].format;
      if (!format) return {};
      const Format& fitting = fitting_format(*format, tensor.view.shape);
      return {.format = &fitting, .intended = &fitting == format ? nullptr : format};
    }
    return choice;
  }

  Status add_tensor(const GgufTensor& tensor, FormatChoice choice) {
    const bool can_change = is_quantizable({.name = tensor.name, .shape = tensor.view.shape});
    if (can_change) choice = overridden(tensor, choice);
    PlannedTensor planned{.source = &tensor, .format = tensor.view.format};
    if (choice.format && choice.format != tensor.view.format && is_readable(tensor)) {
      if (Status allowed = check_change(tensor, *choice.format); !allowed.ok()) return allowed;
      planned.format = choice.format;
      planned.quantizer = find_quantizer(*choice.format);
      if (choice.intended) n_fallbacks_[fmt::format("{} for {}", choice.format->name, choice.intended->name)] += 1;
      if (Status important = check_importance(planned); !important.ok()) return important;
    }
    plan_.n_elems += static_cast<uint64_t>(tensor.view.shape.elems());
    plan_.n_tensor_bytes += row_bytes(*planned.format, static_cast<size_t>(tensor.view.shape.elems()));
    plan_.tensors.push_back(planned);
    return ok_status();
  }

  // Tables of integers are not weights.
  static bool is_readable(const GgufTensor& tensor) {
    return !tensor.view.format->name.starts_with('i') || tensor.view.format->name.starts_with("iq");
  }

  Status check_change(const GgufTensor& tensor, const Format& format) {
    const std::string name = sanitize_for_terminal(tensor.name);
    if (tensor.view.shape.inner() > kMaxRowElems) {
      return fail(ErrorCode::unsupported, "{}: tensor '{}' has rows of {} elements; at most {} can be quantized",
                  file_.name(), name, tensor.view.shape.inner(), kMaxRowElems);
    }
    if (!find_quantizer(format)) {
      return fail(ErrorCode::unsupported, "{}: tensor '{}' would become {}, which zinc cannot make; choose one of {}",
                  file_.name(), name, format.name, override_format_names());
    }
    if (tensor.view.format->block_elems == 1 || options_.allow_requantize) return ok_status();
    return fail(ErrorCode::invalid_input,
                "{}: tensor '{}' is already quantized, to {}: quantizing it again to {} loses more than quantizing the "
                "original does. Quantize an f16 or bf16 file, keep such tensors with --tensor 'REGEX=copy', or use "
                "--allow-requantize",
                file_.name(), name, tensor.view.format->name, format.name);
  }

  // Of a tensor that changes its format.
  Status check_importance(const PlannedTensor& planned) {
    if (planned.format->block_elems == 1) return ok_status();
    const GgufTensor& tensor = *planned.source;
    const bool is_table = tensor.name == "token_embd.weight" || tensor.name == "per_layer_token_embd.weight";
    bool has_row = false;
    if (options_.importance) {
      const Result<std::vector<float>> row = importance_of(*options_.importance, importance_row(tensor, 0));
      if (!row.ok() && !is_table) return row.error();
      has_row = row.ok() && !row.value().empty();
    }
    if (has_row || is_table || tensor.name == "output.weight") return ok_status();
    if (options_.importance) without_entry_.emplace_back(tensor.name);
    if (bits_per_weight(*planned.format) < kBitsWithoutImportance) low_bit_.insert(planned.format->name);
    const bool needs_it =
        planned.quantizer->needs_importance || (planned.format->name == "q2_k" && options_.type->name == "q2_k_s");
    if (!needs_it || options_.dry_run) return ok_status();
    return fail(
        ErrorCode::invalid_input,
        "tensor '{}' would become {}: {}. Make one with `zinc imatrix`, pass it with --imatrix, or choose a type "
        "of at least 3 bits per weight",
        sanitize_for_terminal(tensor.name), planned.format->name,
        options_.importance ? fmt::format("{} has no entry for it, and without one the result would be useless",
                                          options_.importance_path)
                            : "without an importance matrix the result would be useless");
  }

  Status check_overrides() const {
    for (size_t i = 0; i < patterns_.size(); ++i) {
      if (n_matches_[i] > 0) continue;
      return fail(ErrorCode::invalid_input,
                  "--tensor '{}': matches no tensor that can be quantized, or an earlier --tensor takes all of them; "
                  "`zinc quantize --dry-run` shows the names",
                  options_.overrides[i].pattern);
    }
    return ok_status();
  }

  void make_headers() {
    const size_t n_files = options_.keep_split ? file_.shard_names().size() : 1;
    plan_.headers.resize(n_files);
    GgufHeader& first = plan_.headers[0];
    for (const auto& [key, value] : file_.metadata()) {
      if (!key.starts_with("split.")) first.set(key, value);
    }
    if (!options_.type->format.empty()) {
      first.set("general.quantization_version", kQuantizationVersion);
      first.set("general.file_type", options_.type->file_type);
    }
    if (options_.importance) set_importance_keys(first);
    for (size_t i = 0; n_files > 1 && i < n_files; ++i) {
      if (const GgufValue* alignment = file_.find("general.alignment"); i > 0 && alignment) {
        plan_.headers[i].set("general.alignment", *alignment);
      }
      plan_.headers[i].set("split.no", static_cast<uint16_t>(i));
      plan_.headers[i].set("split.count", static_cast<uint16_t>(n_files));
      plan_.headers[i].set("split.tensors.count", static_cast<int32_t>(plan_.tensors.size()));
    }
    for (const PlannedTensor& tensor : plan_.tensors) {
      GgufHeader& header = plan_.headers[options_.keep_split ? static_cast<size_t>(tensor.source->shard) : 0];
      header.add_tensor(tensor.source->name, tensor.source->view.shape, *tensor.format);
    }
  }

  void set_importance_keys(GgufHeader& header) const {
    const ImportanceMatrix& matrix = *options_.importance;
    header.set("quantize.imatrix.file", options_.importance_path);
    if (!matrix.datasets.empty()) header.set("quantize.imatrix.dataset", matrix.datasets[0]);
    header.set("quantize.imatrix.entries_count", static_cast<uint32_t>(matrix.entries.size()));
    if (matrix.chunk_count > 0) {
      header.set("quantize.imatrix.chunks_count", static_cast<uint32_t>(matrix.chunk_count));
    }
  }

  void add_warnings() {
    const auto changes_to = [&](std::string_view name) {
      return std::ranges::any_of(plan_.tensors,
                                 [&](const PlannedTensor& t) { return t.quantizer && t.format->name == name; });
    };
    for (const std::string_view name : kTernary) {
      low_bit_.erase(name);
      if (!changes_to(name)) continue;
      plan_.warnings.push_back(
          fmt::format("{} has two or three values per scale: it is for models that were trained with such weights, and "
                      "others lose nearly everything",
                      name));
    }
    if (!low_bit_.empty() && !options_.importance) {
      plan_.warnings.push_back(fmt::format(
          "{} has less than 4 bits per weight, and without an importance matrix every column counts as equally "
          "important: rounding then spoils the few columns with large activations, on which the answers depend. "
          "Make a matrix with `zinc imatrix` and pass it with --imatrix",
          fmt::join(low_bit_, ", ")));
    }
    if (!without_entry_.empty()) {
      plan_.warnings.push_back(fmt::format("{} has no entry for {}, such as '{}': {} quantized without it",
                                           options_.importance_path, pluralize(without_entry_.size(), "tensor"),
                                           sanitize_for_terminal(without_entry_[0]),
                                           without_entry_.size() == 1 ? "it is" : "they are"));
    }
    for (const auto& [formats, n] : n_fallbacks_) {
      plan_.warnings.push_back(
          fmt::format("{} with rows that are not whole blocks: {}", pluralize(n, "tensor"), formats));
    }
  }

  const GgufFile& file_;
  const QuantizeOptions& options_;
  QuantizePlan plan_;
  std::vector<std::regex> patterns_;
  std::vector<size_t> n_matches_;      // by pattern
  std::vector<FormatChoice> choices_;  // by tensor of the file
  std::set<std::string_view> low_bit_;
  std::vector<std::string> without_entry_;
  std::map<std::string, size_t> n_fallbacks_;
};

}  // namespace

uint64_t QuantizePlan::file_bytes() const {
  uint64_t n_bytes = 0;
  for (const GgufHeader& header : headers) n_bytes += header.file_bytes();
  return n_bytes;
}

Result<QuantizePlan> plan_quantization(const GgufFile& file, const QuantizeOptions& options) {
  return Planner(file, options).plan();
}

ImportanceRow importance_row(const GgufTensor& tensor, int64_t mat) {
  const Shape& shape = tensor.view.shape;
  const int64_t n_matrix_elems = shape.n_dims() < 2 ? shape.elems() : shape.inner() * shape[shape.n_dims() - 2];
  return {.name = tensor.name, .n_mat = shape.elems() / n_matrix_elems, .n_columns = shape.inner(), .mat = mat};
}

std::vector<fs::path> output_paths(const fs::path& output, size_t n_files) {
  if (n_files == 1) return {output};
  std::string prefix = output.string();
  constexpr std::string_view kSuffix = ".gguf";
  if (prefix.ends_with(kSuffix)) prefix.resize(prefix.size() - kSuffix.size());
  if (const std::string first = fmt::format("-00001-of-{:05}", n_files); prefix.ends_with(first)) {
    prefix.resize(prefix.size() - first.size());
  }
  std::vector<fs::path> paths;
  for (size_t i = 0; i < n_files; ++i)
    paths.emplace_back(fmt::format("{}-{:05}-of-{:05}.gguf", prefix, i + 1, n_files));
  return paths;
}

std::optional<const Format*> find_override_format(std::string_view name) {
  std::string lower(name);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (lower == kCopy) return nullptr;
  const Format* const format = find_format(lower);
  if (!format || !find_quantizer(*format)) return std::nullopt;
  return format;
}

std::string override_format_names() {
  std::string names;
  for (const Quantizer* const* quantizer = kQuantizers; *quantizer; ++quantizer) {
    const Format& format = (*quantizer)->format;
    names += fmt::format("{} ({:.3g}), ", format.name, zinc::bits_per_weight(format));
  }
  return names + std::string(kCopy);
}

}  // namespace zinc
