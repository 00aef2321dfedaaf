#include "constrain/schema_facts.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <unordered_set>
#include <utility>

#include "base/printable.h"

namespace zinc {
namespace {

constexpr int64_t kMostSteps = 1 << 18;
constexpr size_t kMostWithin = 128;  // $ref and allOf into each other
constexpr size_t kMostChoices = 16;  // that hold side by side
constexpr int64_t kMostTimes = 1 << 14;
constexpr int32_t kNoParent = -1;

constexpr std::string_view kCircle = "a $ref leads back to itself with nothing in between";
constexpr std::string_view kTooDeep = "$ref and allOf lead through too many schemas";

// Keywords that constrain and are not kept, with the one value by which they say nothing.
struct Refused {
  std::string_view name, harmless = {};
};
constexpr Refused kRefused[] = {{"not"},
                                {"if"},
                                {"then"},
                                {"else"},
                                {"patternProperties", "{}"},
                                {"propertyNames", "true"},
                                {"minProperties", "0"},
                                {"maxProperties"},
                                {"dependencies", "{}"},
                                {"dependentRequired", "{}"},
                                {"dependentSchemas", "{}"},
                                {"uniqueItems", "false"},
                                {"contains"},
                                {"multipleOf"},
                                {"unevaluatedItems", "true"},
                                {"unevaluatedProperties", "true"},
                                {"$dynamicRef"},
                                {"$recursiveRef"}};
// What means nothing here, beside a $ref that is therefore the whole of its schema.
constexpr std::string_view kAnnotations[] = {"title",     "description", "default",  "examples",   "$schema",
                                             "$id",       "id",          "$comment", "deprecated", "readOnly",
                                             "writeOnly", "$defs",       "$anchor",  "definitions"};

struct TypeName {
  std::string_view name;
  uint8_t types;
};
constexpr TypeName kTypes[] = {{"null", JsonTypes::null},     {"boolean", JsonTypes::boolean},
                               {"object", JsonTypes::object}, {"array", JsonTypes::array},
                               {"string", JsonTypes::string}, {"integer", JsonTypes::integer},
                               {"number", JsonTypes::kNumber}};

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

// The nearest integer that is not below, or not above, if an int64 can be it.
std::optional<int64_t> integer_from(const json::value& value, bool is_open) {
  if (value.is_uint64()) return std::nullopt;
  if (value.is_int64()) {
    if (!is_open) return value.get_int64();
    return value.get_int64() == INT64_MAX ? std::nullopt : std::optional(value.get_int64() + 1);
  }
  const double least = is_open ? std::floor(value.get_double()) + 1 : std::ceil(value.get_double());
  if (least >= 0x1p63) return std::nullopt;
  return least < -0x1p63 ? INT64_MIN : static_cast<int64_t>(least);
}
std::optional<int64_t> integer_up_to(const json::value& value, bool is_open) {
  if (value.is_uint64()) return INT64_MAX;
  if (value.is_int64()) {
    if (!is_open) return value.get_int64();
    return value.get_int64() == INT64_MIN ? std::nullopt : std::optional(value.get_int64() - 1);
  }
  const double most = is_open ? std::ceil(value.get_double()) - 1 : std::floor(value.get_double());
  if (most < -0x1p63) return std::nullopt;
  return most >= 0x1p63 ? INT64_MAX : static_cast<int64_t>(most);
}

// One step of a JSON pointer: %-escapes, then ~0 and ~1.
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
    : root_(root), paths_{{kNoParent, "#", 0}}, n_steps_left_(kMostSteps) {}

std::string SchemaReader::path_text(int32_t path) const {
  std::vector<const PathPart*> parts;
  for (; path != kNoParent; path = parts.back()->parent) parts.push_back(&paths_[static_cast<size_t>(path)]);
  std::string text = "#";
  for (size_t i = parts.size() - 1; i-- > 0;) {
    text += '/';
    text += parts[i]->name.data() ? printable(parts[i]->name) : std::to_string(parts[i]->index);
  }
  return text;
}

Error SchemaReader::refuse(int32_t path, std::string_view why) const {
  return fail(ErrorCode::invalid_input, "{}: {}", path_text(path), why);
}

Status SchemaReader::note_impossible(int32_t path, std::string_view why, SchemaFacts& facts) const {
  if (!facts.impossible) facts.impossible = refuse(path, why);
  return ok_status();
}

SchemaPlace SchemaReader::child(int32_t path, std::string_view name, const json::value& schema) {
  paths_.push_back({path, name, 0});
  return {&schema, static_cast<int32_t>(paths_.size()) - 1};
}

SchemaPlace SchemaReader::element(int32_t path, size_t index, const json::value& schema) {
  paths_.push_back({path, {}, index});
  return {&schema, static_cast<int32_t>(paths_.size()) - 1};
}

Status SchemaReader::spend(int64_t n_steps) {
  n_steps_left_ -= n_steps;
  if (n_steps_left_ < 0)
    return fail(ErrorCode::invalid_input, "the schema is too large, or its parts meet in too many ways");
  return ok_status();
}

Result<SchemaFacts> SchemaReader::facts_of(const Schemas& schemas) {
  SchemaFacts facts;
  if (!schemas.empty()) facts.path = schemas.front().path;
  for (const SchemaPlace& place : schemas) {
    Names within;
    ZINC_TRY(added, add(place, within, facts));
  }
  if (schemas.size() == 1 && schemas.front().schema->is_object()) {
    const json::value* const nullable = schemas.front().schema->get_object().if_contains("nullable");
    facts.or_null = nullable && *nullable == true;
  }
  return facts;
}

Status SchemaReader::add_chosen(const SchemaFacts::Choice& choice, size_t i, SchemaFacts& facts) {
  Names within = choice.within;
  return add(choice.of[i], within, facts);
}

Status SchemaReader::add(SchemaPlace place, Names& within, SchemaFacts& facts) {
  ZINC_TRY(spent, spend(1));
  const json::value& schema = *place.schema;
  if (schema.is_bool()) {
    return schema.get_bool() ? ok_status() : note_impossible(place.path, "nothing is allowed here", facts);
  }
  if (!schema.is_object()) return refuse(place.path, "a schema must be an object or a boolean");
  if (contains(within, &schema)) return refuse(place.path, kCircle);
  if (within.size() == kMostWithin) return refuse(place.path, kTooDeep);
  if (contains(facts.seen, &schema)) return ok_status();
  facts.seen.push_back(&schema);
  within.push_back(&schema);
  ZINC_TRY(spent_on_keywords, spend(static_cast<int64_t>(schema.get_object().size() + facts.seen.size())));
  ZINC_TRY(checked, check_keywords(schema.get_object(), place.path));
  for (const auto add_kind : {&SchemaReader::add_types, &SchemaReader::add_values, &SchemaReader::add_strings,
                              &SchemaReader::add_numbers, &SchemaReader::add_arrays, &SchemaReader::add_objects}) {
    ZINC_TRY(added, (this->*add_kind)(place, facts));
  }
  ZINC_TRY(chosen, add_choices(place, within, facts));
  ZINC_TRY(joined, add_all_of(place, within, facts));
  within.pop_back();
  return ok_status();
}

Status SchemaReader::check_keywords(const json::object& schema, int32_t path) {
  for (const Refused& refused : kRefused) {
    const json::value* const value = schema.if_contains(refused.name);
    if (!value || (!refused.harmless.empty() && to_json(*value) == refused.harmless)) continue;
    return refuse(path, fmt::format("\"{}\" is not supported", refused.name));
  }
  return ok_status();
}

Status SchemaReader::add_types(SchemaPlace place, SchemaFacts& facts) {
  const json::value* const type = place.schema->get_object().if_contains("type");
  if (!type) return ok_status();
  uint8_t types = 0;
  const json::array one = {type->is_array() ? json::value() : *type};
  for (const json::value& name : type->is_array() ? type->get_array() : one) {
    const std::optional<uint8_t> known = type_of_name(name);
    if (!known) return refuse(place.path, fmt::format("\"type\" has no type {}", printable(to_json(name))));
    types |= *known;
  }
  facts.types = facts.types.value_or(JsonTypes::kAll) & types;
  ++facts.n_said;
  return *facts.types ? ok_status() : note_impossible(place.path, "\"type\" leaves no type", facts);
}

Status SchemaReader::add_values(SchemaPlace place, SchemaFacts& facts) {
  const json::object& schema = place.schema->get_object();
  std::vector<const json::value*> values;
  const auto add_list = [&]() -> Status {
    ++facts.n_said;
    if (facts.values) {
      std::unordered_set<std::string> allowed;
      for (const json::value* value : values) allowed.insert(to_json(*value));
      std::erase_if(*facts.values, [&](const json::value* value) { return !allowed.contains(to_json(*value)); });
    } else {
      facts.values = values;
    }
    ZINC_TRY(spent, spend(static_cast<int64_t>(values.size())));
    if (!facts.values->empty()) return ok_status();
    return note_impossible(place.path, "\"enum\" and \"const\" leave no value", facts);
  };
  if (const json::value* const value = schema.if_contains("const")) {
    values = {value};
    ZINC_TRY(added, add_list());
  }
  if (const json::value* const list = schema.if_contains("enum")) {
    if (!list->is_array()) return refuse(place.path, "\"enum\" must be a list");
    values.clear();
    for (const json::value& value : list->get_array()) values.push_back(&value);
    return add_list();
  }
  return ok_status();
}

Result<std::optional<int64_t>> SchemaReader::count(SchemaPlace place, std::string_view keyword) {
  const json::value* const value = place.schema->get_object().if_contains(keyword);
  if (!value) return std::optional<int64_t>();
  if (!is_natural(*value)) return refuse(place.path, fmt::format("\"{}\" must be an integer from 0 on", keyword));
  if (value->to_number<double>() > static_cast<double>(kMostTimes)) {
    return refuse(place.path, fmt::format("\"{}\" is over {}, the most that can be counted", keyword, kMostTimes));
  }
  return std::optional(static_cast<int64_t>(value->to_number<double>()));
}

Status SchemaReader::add_counts(SchemaPlace place, std::string_view min_name, std::string_view max_name,
                                CountLimits& limits, SchemaFacts& facts) {
  ZINC_TRY(min, count(place, min_name));
  ZINC_TRY(max, count(place, max_name));
  if (min) limits.min = std::max(limits.min, *min);
  if (max) limits.max = limits.max == GrammarBuilder::kNoLimit ? *max : std::min(limits.max, *max);
  facts.n_said += min || max;
  if (limits.max == GrammarBuilder::kNoLimit || limits.min <= limits.max) return ok_status();
  return note_impossible(place.path, fmt::format("\"{}\" is more than \"{}\"", min_name, max_name), facts);
}

Status SchemaReader::add_strings(SchemaPlace place, SchemaFacts& facts) {
  CountLimits limits = {.min = facts.lengths.min, .max = facts.lengths.max};
  const int n_said = facts.n_said;
  ZINC_TRY(counted, add_counts(place, "minLength", "maxLength", limits, facts));
  facts.lengths = {.min = limits.min, .max = limits.max};
  const auto add_text = [&](std::string_view name, std::optional<std::string_view>& text) -> Status {
    const json::value* const value = place.schema->get_object().if_contains(name);
    if (!value) return ok_status();
    if (!value->is_string()) return refuse(place.path, fmt::format("\"{}\" must be a string", name));
    if (text && *text != std::string_view(value->get_string())) {
      return refuse(place.path, fmt::format("two of \"{}\" at once are not supported", name));
    }
    text = value->get_string();
    ++facts.n_said;
    return ok_status();
  };
  ZINC_TRY(with_pattern, add_text("pattern", facts.pattern));
  ZINC_TRY(with_format, add_text("format", facts.format));
  const bool is_format_alone = facts.n_said == n_said + 1 && place.schema->get_object().contains("format");
  if (facts.n_said > n_said && !is_format_alone) facts.hinted_types |= JsonTypes::string;
  return ok_status();
}

Status SchemaReader::add_numbers(SchemaPlace place, SchemaFacts& facts) {
  struct Bound {
    std::string_view name;
    bool is_lower, is_open;
  };
  constexpr Bound kBounds[] = {{"minimum", true, false},
                               {"exclusiveMinimum", true, true},
                               {"maximum", false, false},
                               {"exclusiveMaximum", false, true}};
  for (const auto& [name, is_lower, is_open] : kBounds) {
    const json::value* const value = place.schema->get_object().if_contains(name);
    if (!value) continue;
    if (!value->is_number()) return refuse(place.path, fmt::format("\"{}\" must be a number", name));
    (is_lower ? facts.lower : facts.upper).push_back({value->to_number<double>(), is_open});
    const std::optional<int64_t> nearest = is_lower ? integer_from(*value, is_open) : integer_up_to(*value, is_open);
    if (is_lower && nearest) facts.least_integer = std::max(facts.least_integer, *nearest);
    if (!is_lower && nearest) facts.most_integer = std::min(facts.most_integer, *nearest);
    facts.has_no_integer = facts.has_no_integer || !nearest;
    facts.hinted_types |= JsonTypes::kNumber;
    ++facts.n_said;
  }
  return ok_status();
}

Status SchemaReader::add_arrays(SchemaPlace place, SchemaFacts& facts) {
  const json::object& schema = place.schema->get_object();
  const int n_said = facts.n_said;
  ZINC_TRY(counted, add_counts(place, "minItems", "maxItems", facts.n_items, facts));
  const json::value* const items = schema.if_contains("items");
  const bool is_draft_07 = items && items->is_array();  // there `items` says what `prefixItems` says now
  const std::string_view first_name = is_draft_07 ? "items" : "prefixItems";
  const std::string_view rest_name = is_draft_07 ? "additionalItems" : "items";
  const json::value* const rest = schema.if_contains(rest_name);
  SchemaFacts::Array array;
  if (schema.contains(first_name)) {
    ZINC_TRY(first, list(place, first_name));
    array.first = std::move(first);
  }
  if (rest) array.rest = child(place.path, rest_name, *rest);
  if (schema.contains(first_name) || rest) {
    facts.arrays.push_back(std::move(array));
    ++facts.n_said;
  }
  if (facts.n_said > n_said) facts.hinted_types |= JsonTypes::array;
  return ok_status();
}

Status SchemaReader::add_objects(SchemaPlace place, SchemaFacts& facts) {
  const json::object& schema = place.schema->get_object();
  const int n_said = facts.n_said;
  SchemaFacts::Object object;
  const json::value* const properties = schema.if_contains("properties");
  const json::value* const rest = schema.if_contains("additionalProperties");
  if (properties) {
    if (!properties->is_object()) return refuse(place.path, "\"properties\" must be an object");
    object.properties = &properties->get_object();
    object.properties_path = child(place.path, "properties", *properties).path;
  }
  if (rest) object.rest = child(place.path, "additionalProperties", *rest);
  if (properties || rest) {
    facts.objects.push_back(object);
    ++facts.n_said;
  }
  if (const json::value* const required = schema.if_contains("required")) {
    if (!required->is_array()) return refuse(place.path, "\"required\" must be a list of names");
    ZINC_TRY(spent, spend(static_cast<int64_t>(required->get_array().size())));
    for (const json::value& name : required->get_array()) {
      if (!name.is_string()) return refuse(place.path, "\"required\" must be a list of names");
      facts.required.push_back(name.get_string());
    }
    ++facts.n_said;
  }
  if (facts.n_said > n_said) facts.hinted_types |= JsonTypes::object;
  return ok_status();
}

Result<Schemas> SchemaReader::list(SchemaPlace place, std::string_view keyword) {
  const json::value& value = place.schema->get_object().at(keyword);
  if (!value.is_array()) return refuse(place.path, fmt::format("\"{}\" must be a list of schemas", keyword));
  ZINC_TRY(spent, spend(static_cast<int64_t>(value.get_array().size())));
  const int32_t path = child(place.path, keyword, value).path;
  Schemas out;
  for (const json::value& schema : value.get_array()) out.push_back(element(path, out.size(), schema));
  return out;
}

Status SchemaReader::add_choices(SchemaPlace place, const Names& within, SchemaFacts& facts) {
  for (const std::string_view name : {"anyOf", "oneOf"}) {
    if (!place.schema->get_object().contains(name)) continue;
    ZINC_TRY(of, list(place, name));
    if (of.empty()) return refuse(place.path, fmt::format("\"{}\" leaves no choice", name));
    if (facts.choices.size() == kMostChoices) return refuse(place.path, "too many choices at once");
    facts.choices.push_back({std::move(of), within});
  }
  return ok_status();
}

Status SchemaReader::add_all_of(SchemaPlace place, Names& within, SchemaFacts& facts) {
  const json::object& schema = place.schema->get_object();
  if (const json::value* const reference = schema.if_contains("$ref")) {
    ZINC_TRY(target, resolve(place, *reference));
    ZINC_TRY(added, add(target, within, facts));
  }
  if (!schema.contains("allOf")) return ok_status();
  ZINC_TRY(all, list(place, "allOf"));
  for (const SchemaPlace& one : all) {
    ZINC_TRY(added, add(one, within, facts));
  }
  return ok_status();
}

Result<SchemaPlace> SchemaReader::without_references(SchemaPlace place) {
  Names passed;
  while (place.schema->is_object() && passed.size() < kMostWithin) {
    const json::object& schema = place.schema->get_object();
    const json::value* const reference = schema.if_contains("$ref");
    const auto says_something = [](const auto& member) {
      return member.key() != "$ref" && !contains(kAnnotations, std::string_view(member.key()));
    };
    if (!reference || std::ranges::any_of(schema, says_something)) return place;
    if (contains(passed, place.schema)) return refuse(place.path, kCircle);
    passed.push_back(place.schema);
    ZINC_TRY(target, resolve(place, *reference));
    place = target;
  }
  if (passed.size() == kMostWithin) return refuse(place.path, kTooDeep);
  return place;
}

Result<SchemaPlace> SchemaReader::resolve(SchemaPlace place, const json::value& reference) {
  ZINC_TRY(spent, spend(1));
  const std::string_view text = reference.is_string() ? std::string_view(reference.get_string()) : std::string_view();
  if (text != "#" && !text.starts_with("#/")) {
    return refuse(place.path, fmt::format("\"$ref\" {} is not supported: it must lead into this schema (#/...)",
                                          printable(to_json(reference))));
  }
  SchemaPlace at = root();
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
      return refuse(place.path, fmt::format("\"$ref\" {} leads nowhere", printable(text)));
    }
  }
  return at;
}

}  // namespace zinc
