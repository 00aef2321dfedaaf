#include "constrain/schema_reader.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <unordered_set>
#include <utility>

#include "base/sanitize_for_terminal.h"

namespace zinc {
namespace {

constexpr int64_t kMaxSteps = 1 << 18;
constexpr size_t kMaxRefDepth = 128;  // nesting of $ref and allOf
constexpr size_t kMaxChoices = 16;    // that apply to the same value
constexpr int64_t kMaxRepeats = 1 << 14;
constexpr int32_t kNoParent = -1;

constexpr std::string_view kCircularRef = "circular $ref";
constexpr std::string_view kTooDeep = "$ref and allOf are nested too deeply";

// Constraining keywords that are not supported, each with the value for which it has no effect.
struct UnsupportedKeyword {
  std::string_view name, neutral = {};
};
constexpr UnsupportedKeyword kUnsupportedKeywords[] = {{"not"},
                                                       {"if"},
                                                       {"then"},
                                                       {"else"},
                                                       {"patternProperties", "{}"},
                                                       {"dependencies", "{}"},
                                                       {"dependentRequired", "{}"},
                                                       {"dependentSchemas", "{}"},
                                                       {"contains"},
                                                       {"unevaluatedItems", "true"},
                                                       {"unevaluatedProperties", "true"},
                                                       {"$dynamicRef"},
                                                       {"$recursiveRef"}};
// Annotations: a schema with $ref and only these is equivalent to the referenced schema.
constexpr std::string_view kAnnotations[] = {"title",     "description", "default",  "examples",   "$schema",
                                             "$id",       "id",          "$comment", "deprecated", "readOnly",
                                             "writeOnly", "$defs",       "$anchor",  "definitions"};

struct TypeName {
  std::string_view name;
  uint8_t types;
};
constexpr TypeName kTypes[] = {{"null", JsonTypeSet::null},     {"boolean", JsonTypeSet::boolean},
                               {"object", JsonTypeSet::object}, {"array", JsonTypeSet::array},
                               {"string", JsonTypeSet::string}, {"integer", JsonTypeSet::integer},
                               {"number", JsonTypeSet::kNumber}};

template <class Range>
bool contains(const Range& range, const auto& value) {
  return std::ranges::find(range, value) != std::ranges::end(range);
}

std::optional<uint8_t> type_of_name(const json::value& name) {
  if (!name.is_string()) return std::nullopt;
  const auto* const found = std::ranges::find(kTypes, std::string_view(name.get_string()), &TypeName::name);
  return found == std::end(kTypes) ? std::nullopt : std::optional(found->types);
}

bool is_natural(const json::value& value) {
  if (value.is_double()) return value.get_double() >= 0 && value.get_double() == std::floor(value.get_double());
  return value.is_uint64() || (value.is_int64() && value.get_int64() >= 0);
}

// The nearest integer at or above (below) a bound, if it fits into int64.
std::optional<int64_t> integer_at_least(const json::value& value, bool is_open) {
  if (value.is_uint64()) return std::nullopt;
  if (value.is_int64()) {
    if (!is_open) return value.get_int64();
    return value.get_int64() == INT64_MAX ? std::nullopt : std::optional(value.get_int64() + 1);
  }
  const double minimum = is_open ? std::floor(value.get_double()) + 1 : std::ceil(value.get_double());
  if (minimum >= 0x1p63) return std::nullopt;
  return minimum < -0x1p63 ? INT64_MIN : static_cast<int64_t>(minimum);
}
std::optional<int64_t> integer_at_most(const json::value& value, bool is_open) {
  if (value.is_uint64()) return INT64_MAX;
  if (value.is_int64()) {
    if (!is_open) return value.get_int64();
    return value.get_int64() == INT64_MIN ? std::nullopt : std::optional(value.get_int64() - 1);
  }
  const double maximum = is_open ? std::ceil(value.get_double()) - 1 : std::floor(value.get_double());
  if (maximum < -0x1p63) return std::nullopt;
  return maximum >= 0x1p63 ? INT64_MAX : static_cast<int64_t>(maximum);
}

// Unescapes one token of a JSON pointer: first %-escapes, then ~0 and ~1.
std::string unescaped(std::string_view token) {
  std::string bytes, out;
  for (size_t i = 0; i < token.size(); ++i) {
    uint8_t byte = 0;
    const char *const begin = token.data() + i + 1, *const end = begin + 2;
    const bool is_escape = token[i] == '%' && i + 2 < token.size() && std::from_chars(begin, end, byte, 16).ptr == end;
    bytes += is_escape ? static_cast<char>(byte) : token[i];
    if (is_escape) i += 2;
  }
  for (size_t i = 0; i < bytes.size(); ++i) {
    const bool is_escape = bytes[i] == '~' && i + 1 < bytes.size() && (bytes[i + 1] == '0' || bytes[i + 1] == '1');
    out += !is_escape ? bytes[i] : bytes[i + 1] == '0' ? '~' : '/';
    if (is_escape) ++i;
  }
  return out;
}

}  // namespace

SchemaReader::SchemaReader(const json::value& root)
    : root_(root), paths_{{kNoParent, "#", 0}}, n_steps_left_(kMaxSteps) {}

std::string SchemaReader::path_text(int32_t path) const {
  std::vector<const PathPart*> parts;
  for (; path != kNoParent; path = parts.back()->parent) parts.push_back(&paths_[static_cast<size_t>(path)]);
  std::string text = "#";
  for (size_t i = parts.size() - 1; i-- > 0;) {
    text += '/';
    text += parts[i]->name.data() ? sanitize_for_terminal(parts[i]->name) : std::to_string(parts[i]->index);
  }
  return text;
}

Error SchemaReader::error_at(int32_t path, std::string_view why) const {
  return fail(ErrorCode::invalid_input, "{}: {}", path_text(path), why);
}

Status SchemaReader::note_contradiction(int32_t path, std::string_view why, SchemaConstraints& constraints) const {
  if (!constraints.contradiction) constraints.contradiction = error_at(path, why);
  return ok_status();
}

SchemaRef SchemaReader::child(int32_t path, std::string_view name, const json::value& schema) {
  paths_.push_back({path, name, 0});
  return {&schema, static_cast<int32_t>(paths_.size()) - 1};
}

SchemaRef SchemaReader::element(int32_t path, size_t index, const json::value& schema) {
  paths_.push_back({path, {}, index});
  return {&schema, static_cast<int32_t>(paths_.size()) - 1};
}

Status SchemaReader::spend(int64_t n_steps) {
  n_steps_left_ -= n_steps;
  if (n_steps_left_ < 0)
    return fail(ErrorCode::invalid_input,
                "the schema is too large, or its allOf and anyOf combinations expand to too many rules; simplify it");
  return ok_status();
}

Result<SchemaConstraints> SchemaReader::constraints_of(const Schemas& schemas) {
  SchemaConstraints constraints;
  if (!schemas.empty()) constraints.path = schemas.front().path;
  for (const SchemaRef& ref : schemas) {
    RefPath ref_path;
    ZINC_TRY(added, add(ref, ref_path, constraints));
  }
  if (schemas.size() == 1 && schemas.front().schema->is_object()) {
    const json::value* const nullable = schemas.front().schema->get_object().if_contains("nullable");
    constraints.or_null = nullable && *nullable == true;
  }
  return constraints;
}

Status SchemaReader::add_option(const SchemaConstraints::Choice& choice, size_t i, SchemaConstraints& constraints) {
  RefPath ref_path = choice.ref_path;
  return add(choice.options[i], ref_path, constraints);
}

Status SchemaReader::add(SchemaRef ref, RefPath& ref_path, SchemaConstraints& constraints) {
  ZINC_TRY(spent, spend(1));
  const json::value& schema = *ref.schema;
  if (schema.is_bool()) {
    return schema.get_bool() ? ok_status()
                             : note_contradiction(ref.path, "the schema 'false' allows no value", constraints);
  }
  if (!schema.is_object()) return error_at(ref.path, "a schema must be an object or a boolean");
  if (contains(ref_path, &schema)) return error_at(ref.path, kCircularRef);
  if (ref_path.size() == kMaxRefDepth) return error_at(ref.path, kTooDeep);
  if (contains(constraints.visited_schemas, &schema)) return ok_status();
  constraints.visited_schemas.push_back(&schema);
  ref_path.push_back(&schema);
  ZINC_TRY(spent_on_keywords,
           spend(static_cast<int64_t>(schema.get_object().size() + constraints.visited_schemas.size())));
  ZINC_TRY(checked, check_keywords(schema.get_object(), ref.path));
  for (const auto add_kind : {&SchemaReader::add_types, &SchemaReader::add_values, &SchemaReader::add_strings,
                              &SchemaReader::add_numbers, &SchemaReader::add_arrays, &SchemaReader::add_objects}) {
    ZINC_TRY(added, (this->*add_kind)(ref, constraints));
  }
  ZINC_TRY(chosen, add_choices(ref, ref_path, constraints));
  ZINC_TRY(joined, add_all_of(ref, ref_path, constraints));
  ref_path.pop_back();
  return ok_status();
}

Status SchemaReader::check_keywords(const json::object& schema, int32_t path) {
  for (const UnsupportedKeyword& unsupported : kUnsupportedKeywords) {
    const json::value* const value = schema.if_contains(unsupported.name);
    if (!value || (!unsupported.neutral.empty() && to_json(*value) == unsupported.neutral)) continue;
    return error_at(path, fmt::format("\"{}\" is not supported", unsupported.name));
  }
  return ok_status();
}

Status SchemaReader::add_types(SchemaRef ref, SchemaConstraints& constraints) {
  const json::value* const type = ref.schema->get_object().if_contains("type");
  if (!type) return ok_status();
  uint8_t types = 0;
  const json::array single_type = {type->is_array() ? json::value() : *type};
  for (const json::value& name : type->is_array() ? type->get_array() : single_type) {
    const std::optional<uint8_t> known = type_of_name(name);
    if (!known)
      return error_at(ref.path, fmt::format("\"type\": unknown type {}", sanitize_for_terminal(to_json(name))));
    types |= *known;
  }
  constraints.types = constraints.types.value_or(JsonTypeSet::kAll) & types;
  ++constraints.n_keywords;
  return *constraints.types ? ok_status()
                            : note_contradiction(ref.path, "the \"type\" keywords exclude each other", constraints);
}

Status SchemaReader::add_values(SchemaRef ref, SchemaConstraints& constraints) {
  const json::object& schema = ref.schema->get_object();
  std::vector<const json::value*> values;
  const auto add_list = [&]() -> Status {
    ++constraints.n_keywords;
    if (constraints.values) {
      std::unordered_set<std::string> allowed;
      for (const json::value* value : values) allowed.insert(to_json(*value));
      std::erase_if(*constraints.values, [&](const json::value* value) { return !allowed.contains(to_json(*value)); });
    } else {
      constraints.values = values;
    }
    ZINC_TRY(spent, spend(static_cast<int64_t>(values.size())));
    if (!constraints.values->empty()) return ok_status();
    return note_contradiction(ref.path, "\"enum\" and \"const\" allow no value", constraints);
  };
  if (const json::value* const value = schema.if_contains("const")) {
    values = {value};
    ZINC_TRY(added, add_list());
  }
  if (const json::value* const list = schema.if_contains("enum")) {
    if (!list->is_array()) return error_at(ref.path, "\"enum\" must be an array");
    values.clear();
    for (const json::value& value : list->get_array()) values.push_back(&value);
    return add_list();
  }
  return ok_status();
}

Result<std::optional<int64_t>> SchemaReader::count(SchemaRef ref, std::string_view keyword, Excess excess) {
  const json::value* const value = ref.schema->get_object().if_contains(keyword);
  if (!value) return std::optional<int64_t>();
  if (!is_natural(*value)) return error_at(ref.path, fmt::format("\"{}\" must be a non-negative integer", keyword));
  if (value->to_number<double>() > static_cast<double>(kMaxRepeats)) {
    if (excess == Excess::reduce) return std::optional(kMaxRepeats);
    return error_at(ref.path, fmt::format("\"{}\" is over the limit of {}", keyword, kMaxRepeats));
  }
  return std::optional(static_cast<int64_t>(value->to_number<double>()));
}

Status SchemaReader::add_counts(SchemaRef ref, std::string_view min_name, std::string_view max_name,
                                CountLimits& limits, SchemaConstraints& constraints) {
  ZINC_TRY(min, count(ref, min_name, Excess::reject));
  ZINC_TRY(max, count(ref, max_name, Excess::reduce));  // fewer than allowed
  if (min) limits.min = std::max(limits.min, *min);
  if (max) limits.max = limits.max == GrammarBuilder::kNoLimit ? *max : std::min(limits.max, *max);
  constraints.n_keywords += min || max;
  if (limits.max == GrammarBuilder::kNoLimit || limits.min <= limits.max) return ok_status();
  return note_contradiction(ref.path, fmt::format("\"{}\" is greater than \"{}\"", min_name, max_name), constraints);
}

Status SchemaReader::add_strings(SchemaRef ref, SchemaConstraints& constraints) {
  CountLimits limits = {.min = constraints.lengths.min, .max = constraints.lengths.max};
  const int n_keywords = constraints.n_keywords;
  ZINC_TRY(counted, add_counts(ref, "minLength", "maxLength", limits, constraints));
  constraints.lengths = {.min = limits.min, .max = limits.max};
  const auto add_text = [&](std::string_view name, std::optional<std::string_view>& text) -> Status {
    const json::value* const value = ref.schema->get_object().if_contains(name);
    if (!value) return ok_status();
    if (!value->is_string()) return error_at(ref.path, fmt::format("\"{}\" must be a string", name));
    if (text && *text != std::string_view(value->get_string())) {
      return error_at(ref.path, fmt::format("more than one \"{}\" is not supported", name));
    }
    text = value->get_string();
    ++constraints.n_keywords;
    return ok_status();
  };
  ZINC_TRY(with_pattern, add_text("pattern", constraints.pattern));
  ZINC_TRY(with_format, add_text("format", constraints.format));
  const bool is_format_alone = constraints.n_keywords == n_keywords + 1 && ref.schema->get_object().contains("format");
  if (constraints.n_keywords > n_keywords && !is_format_alone) constraints.implied_types |= JsonTypeSet::string;
  return ok_status();
}

Status SchemaReader::add_numbers(SchemaRef ref, SchemaConstraints& constraints) {
  struct Bound {
    std::string_view name;
    bool is_lower, is_open;
  };
  constexpr Bound kBounds[] = {{"minimum", true, false},
                               {"exclusiveMinimum", true, true},
                               {"maximum", false, false},
                               {"exclusiveMaximum", false, true}};
  for (const auto& [name, is_lower, is_open] : kBounds) {
    const json::value* const value = ref.schema->get_object().if_contains(name);
    if (!value || (is_open && value->is_bool())) continue;
    if (!value->is_number()) return error_at(ref.path, fmt::format("\"{}\" must be a number", name));
    const json::value* const exclusive =
        ref.schema->get_object().if_contains(is_lower ? "exclusiveMinimum" : "exclusiveMaximum");
    const bool is_exclusive = is_open || (exclusive && *exclusive == true);  // draft 4: a flag beside the bound
    (is_lower ? constraints.lower : constraints.upper).push_back({value->to_number<double>(), is_exclusive});
    const std::optional<int64_t> nearest =
        is_lower ? integer_at_least(*value, is_exclusive) : integer_at_most(*value, is_exclusive);
    if (is_lower && nearest) constraints.min_integer = std::max(constraints.min_integer, *nearest);
    if (!is_lower && nearest) constraints.max_integer = std::min(constraints.max_integer, *nearest);
    constraints.no_integer_fits = constraints.no_integer_fits || !nearest;
    constraints.implied_types |= JsonTypeSet::kNumber;
    ++constraints.n_keywords;
  }
  return add_multiple_of(ref, constraints);
}

Status SchemaReader::add_multiple_of(SchemaRef ref, SchemaConstraints& constraints) {
  const json::value* const value = ref.schema->get_object().if_contains("multipleOf");
  if (!value) return ok_status();
  const double divisor = value->is_number() ? value->to_number<double>() : 0;
  if (!(divisor > 0)) return error_at(ref.path, "\"multipleOf\" must be a number greater than 0");
  if (constraints.multiple_of && *constraints.multiple_of != divisor)
    return error_at(ref.path, "more than one \"multipleOf\" is not supported");
  constraints.multiple_of = divisor;
  constraints.implied_types |= JsonTypeSet::kNumber;
  ++constraints.n_keywords;
  return ok_status();
}

Status SchemaReader::add_arrays(SchemaRef ref, SchemaConstraints& constraints) {
  const json::object& schema = ref.schema->get_object();
  const int n_keywords = constraints.n_keywords;
  ZINC_TRY(counted, add_counts(ref, "minItems", "maxItems", constraints.n_items, constraints));
  const json::value* const items = schema.if_contains("items");
  const bool is_draft_07 = items && items->is_array();  // where `items` means `prefixItems`
  const std::string_view first_name = is_draft_07 ? "items" : "prefixItems";
  const std::string_view rest_name = is_draft_07 ? "additionalItems" : "items";
  const json::value* const rest = schema.if_contains(rest_name);
  SchemaConstraints::Array array;
  if (schema.contains(first_name)) {
    ZINC_TRY(first, list(ref, first_name));
    array.prefix = std::move(first);
  }
  if (rest) array.rest = child(ref.path, rest_name, *rest);
  if (schema.contains(first_name) || rest) {
    constraints.arrays.push_back(std::move(array));
    ++constraints.n_keywords;
  }
  if (const json::value* const unique = schema.if_contains("uniqueItems"); unique && *unique == true) {
    constraints.has_unique_items = true;
    ++constraints.n_keywords;
  }
  if (constraints.n_keywords > n_keywords) constraints.implied_types |= JsonTypeSet::array;
  return ok_status();
}

Status SchemaReader::add_objects(SchemaRef ref, SchemaConstraints& constraints) {
  const json::object& schema = ref.schema->get_object();
  const int n_keywords = constraints.n_keywords;
  SchemaConstraints::Object object;
  const json::value* const properties = schema.if_contains("properties");
  const json::value* const rest = schema.if_contains("additionalProperties");
  if (properties) {
    if (!properties->is_object()) return error_at(ref.path, "\"properties\" must be an object");
    object.properties = &properties->get_object();
    object.properties_path = child(ref.path, "properties", *properties).path;
  }
  if (rest) object.rest = child(ref.path, "additionalProperties", *rest);
  if (properties || rest) {
    constraints.objects.push_back(object);
    ++constraints.n_keywords;
  }
  if (const json::value* const required = schema.if_contains("required")) {
    if (!required->is_array()) return error_at(ref.path, "\"required\" must be an array of strings");
    ZINC_TRY(spent, spend(static_cast<int64_t>(required->get_array().size())));
    for (const json::value& name : required->get_array()) {
      if (!name.is_string()) return error_at(ref.path, "\"required\" must be an array of strings");
      constraints.required.push_back(name.get_string());
    }
    ++constraints.n_keywords;
  }
  ZINC_TRY(counted, add_counts(ref, "minProperties", "maxProperties", constraints.n_properties, constraints));
  if (const json::value* const names = schema.if_contains("propertyNames")) {
    constraints.property_names.push_back(child(ref.path, "propertyNames", *names));
    ++constraints.n_keywords;
  }
  if (constraints.n_keywords > n_keywords) constraints.implied_types |= JsonTypeSet::object;
  return ok_status();
}

Result<Schemas> SchemaReader::list(SchemaRef ref, std::string_view keyword) {
  const json::value& value = ref.schema->get_object().at(keyword);
  if (!value.is_array()) return error_at(ref.path, fmt::format("\"{}\" must be an array of schemas", keyword));
  ZINC_TRY(spent, spend(static_cast<int64_t>(value.get_array().size())));
  const int32_t path = child(ref.path, keyword, value).path;
  Schemas out;
  for (const json::value& schema : value.get_array()) out.push_back(element(path, out.size(), schema));
  return out;
}

Status SchemaReader::add_choices(SchemaRef ref, const RefPath& ref_path, SchemaConstraints& constraints) {
  for (const std::string_view name : {"anyOf", "oneOf"}) {
    if (!ref.schema->get_object().contains(name)) continue;
    ZINC_TRY(of, list(ref, name));
    if (of.empty()) return error_at(ref.path, fmt::format("\"{}\" is empty", name));
    if (constraints.choices.size() == kMaxChoices)
      return error_at(ref.path, "too many \"anyOf\" and \"oneOf\" apply to the same value");
    constraints.choices.push_back({std::move(of), ref_path, ref.path, name == "oneOf"});
  }
  return ok_status();
}

Status SchemaReader::add_all_of(SchemaRef ref, RefPath& ref_path, SchemaConstraints& constraints) {
  const json::object& schema = ref.schema->get_object();
  if (const json::value* const reference = schema.if_contains("$ref")) {
    ZINC_TRY(target, resolve(ref, *reference));
    ZINC_TRY(added, add(target, ref_path, constraints));
  }
  if (!schema.contains("allOf")) return ok_status();
  ZINC_TRY(all, list(ref, "allOf"));
  for (const SchemaRef& one : all) {
    ZINC_TRY(added, add(one, ref_path, constraints));
  }
  return ok_status();
}

Result<SchemaRef> SchemaReader::resolve_pure_ref(SchemaRef ref) {
  RefPath visited;
  while (ref.schema->is_object() && visited.size() < kMaxRefDepth) {
    const json::object& schema = ref.schema->get_object();
    const json::value* const reference = schema.if_contains("$ref");
    const auto is_constraint = [](const auto& member) {
      return member.key() != "$ref" && !contains(kAnnotations, std::string_view(member.key()));
    };
    if (!reference || std::ranges::any_of(schema, is_constraint)) return ref;
    if (contains(visited, ref.schema)) return error_at(ref.path, kCircularRef);
    visited.push_back(ref.schema);
    ZINC_TRY(target, resolve(ref, *reference));
    ref = target;
  }
  if (visited.size() == kMaxRefDepth) return error_at(ref.path, kTooDeep);
  return ref;
}

Result<SchemaRef> SchemaReader::resolve(SchemaRef ref, const json::value& reference) {
  ZINC_TRY(spent, spend(1));
  const std::string_view text = reference.is_string() ? std::string_view(reference.get_string()) : std::string_view();
  if (text != "#" && !text.starts_with("#/")) {
    return error_at(ref.path, fmt::format("\"$ref\" {} is not supported; it must point into this schema (#/...)",
                                          sanitize_for_terminal(to_json(reference))));
  }
  SchemaRef at = root();
  for (std::string_view rest = text.substr(1); !rest.empty();) {
    const size_t end = std::min(rest.find('/', 1), rest.size());
    const std::string name = unescaped(rest.substr(1, end - 1));
    rest.remove_prefix(end);
    const json::object* const object = at.schema->if_object();
    const json::array* const array = at.schema->if_array();
    const auto member = object ? object->find(name) : json::object::const_iterator();
    const bool is_index =
        array && !name.empty() && name.size() < 9 && name.find_first_not_of("0123456789") == std::string::npos;
    const size_t index = is_index ? static_cast<size_t>(std::stoul(name)) : 0;
    if (object && member != object->end()) {
      at = child(at.path, member->key(), member->value());
    } else if (is_index && index < array->size()) {
      at = element(at.path, index, (*array)[index]);
    } else {
      return error_at(ref.path, fmt::format("\"$ref\" {} does not exist in this schema", sanitize_for_terminal(text)));
    }
  }
  return at;
}

}  // namespace zinc
