// Reads and checks the keywords of a JSON schema, merged with those of every schema that must hold with it (allOf,
// $ref). The result points into the schema, which must outlive it. Schemas are untrusted input: reading is limited by a
// step budget.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "constrain/number_range.h"
#include "constrain/regex.h"

namespace zinc {

struct SchemaRef {
  const json::value* schema;
  int32_t path;  // index in SchemaReader, for messages
};
using Schemas = std::vector<SchemaRef>;  // a value must satisfy all of them

struct JsonTypeSet {
  enum : uint8_t { null = 1, boolean = 2, object = 4, array = 8, string = 16, integer = 32, fraction = 64 };
  static constexpr uint8_t kNumber = integer | fraction, kAll = 127;
};

struct CountLimits {
  int64_t min = 0;
  int64_t max = GrammarBuilder::kNoLimit;
};

struct SchemaConstraints {
  struct Array {
    Schemas prefix;                 // of elements by position (prefixItems)
    std::optional<SchemaRef> rest;  // of the elements after them (items)
  };
  struct Object {
    const json::object* properties = nullptr;
    int32_t properties_path = 0;
    std::optional<SchemaRef> rest;  // of other properties (additionalProperties)
  };
  struct Choice {
    Schemas options;
    std::vector<const json::value*> ref_path;  // schemas that lead to this choice
    int32_t path;                              // of the schema with the keyword
    bool is_one_of;                            // exactly one option must hold, not at least one
  };

  int32_t path = 0;
  int n_keywords = 0;  // keywords recorded here, without choices
  std::optional<uint8_t> types;
  uint8_t implied_types = 0;  // types that other keywords apply to
  bool or_null = false;
  std::optional<Error> contradiction;                     // set: no document satisfies all keywords, and why
  std::optional<std::vector<const json::value*>> values;  // enum, const
  LengthLimits lengths;
  std::optional<std::string_view> pattern, format;
  std::vector<NumberBound> lower, upper;
  int64_t min_integer = INT64_MIN, max_integer = INT64_MAX;
  bool no_integer_fits = false;  // a bound is outside int64
  std::optional<double> multiple_of;
  std::vector<Array> arrays;
  CountLimits n_items;
  bool has_unique_items = false;
  std::vector<Object> objects;
  std::vector<std::string_view> required;
  CountLimits n_properties;
  Schemas property_names;
  std::vector<Choice> choices;
  std::vector<const json::value*> visited_schemas;
};

class SchemaReader {
 public:
  explicit SchemaReader(const json::value& root);

  SchemaRef root() const { return {&root_, 0}; }
  Result<SchemaConstraints> constraints_of(const Schemas& schemas);
  // Adds option `i` of a choice to the constraints that contain the choice.
  Status add_option(const SchemaConstraints::Choice& choice, size_t i, SchemaConstraints& constraints);
  // Follows a schema that consists only of a $ref.
  Result<SchemaRef> resolve_pure_ref(SchemaRef ref);

  SchemaRef child(int32_t path, std::string_view name, const json::value& schema);
  Status spend(int64_t n_steps);              // fails if the step budget is exceeded
  std::string path_text(int32_t path) const;  // '#/properties/name'
  Error error_at(int32_t path, std::string_view why) const;

 private:
  using RefPath = std::vector<const json::value*>;
  enum class Excess : uint8_t { reject, reduce };  // of a count over the limit
  struct PathPart {
    int32_t parent;
    std::string_view name;
    size_t index;  // in an array, if there is no name
  };

  Status add(SchemaRef ref, RefPath& ref_path, SchemaConstraints& constraints);
  Status note_contradiction(int32_t path, std::string_view why, SchemaConstraints& constraints) const;
  Status check_keywords(const json::object& schema, int32_t path);
  Status add_types(SchemaRef ref, SchemaConstraints& constraints);
  Status add_values(SchemaRef ref, SchemaConstraints& constraints);
  Status add_strings(SchemaRef ref, SchemaConstraints& constraints);
  Status add_numbers(SchemaRef ref, SchemaConstraints& constraints);
  Status add_multiple_of(SchemaRef ref, SchemaConstraints& constraints);
  Status add_arrays(SchemaRef ref, SchemaConstraints& constraints);
  Status add_objects(SchemaRef ref, SchemaConstraints& constraints);
  Status add_choices(SchemaRef ref, const RefPath& ref_path, SchemaConstraints& constraints);
  Status add_all_of(SchemaRef ref, RefPath& ref_path, SchemaConstraints& constraints);

  Result<std::optional<int64_t>> count(SchemaRef ref, std::string_view keyword, Excess excess);
  Status add_counts(SchemaRef ref, std::string_view min_name, std::string_view max_name, CountLimits& limits,
                    SchemaConstraints& constraints);
  Result<Schemas> list(SchemaRef ref, std::string_view keyword);
  Result<SchemaRef> resolve(SchemaRef ref, const json::value& reference);
  SchemaRef element(int32_t path, size_t index, const json::value& schema);

  const json::value& root_;
  std::vector<PathPart> paths_;
  int64_t n_steps_left_;
};

}  // namespace zinc
