// What a JSON schema says: its keywords, read and checked, together with those of all that must hold beside it (allOf,
// $ref). The values stay the schema's: it outlives its facts. Schemas are hostile input: whatever is read costs a step,
// and steps are counted.
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

struct SchemaPlace {
  const json::value* schema;
  int32_t path;  // of SchemaReader's, for messages
};
using Schemas = std::vector<SchemaPlace>;  // all of them hold

struct JsonTypes {
  enum : uint8_t { null = 1, boolean = 2, object = 4, array = 8, string = 16, integer = 32, fraction = 64 };
  static constexpr uint8_t kNumber = integer | fraction, kAll = 127;
};

struct CountLimits {
  int64_t min = 0;
  int64_t max = GrammarBuilder::kNoLimit;
};

struct SchemaFacts {
  struct Array {
    Schemas first;                    // of elements by their position
    std::optional<SchemaPlace> rest;  // of those behind them
  };
  struct Object {
    const json::object* properties = nullptr;
    int32_t properties_path = 0;
    std::optional<SchemaPlace> rest;  // of other properties
  };
  struct Choice {
    Schemas of;
    std::vector<const json::value*> within;  // schemas that lead to this choice
  };

  int32_t path = 0;
  int n_said = 0;  // keywords that are kept here, other than choices
  std::optional<uint8_t> types;
  uint8_t hinted_types = 0;  // of which other keywords speak
  bool or_null = false;
  std::optional<Error> impossible;                        // no document is of all that was read: why
  std::optional<std::vector<const json::value*>> values;  // enum, const
  LengthLimits lengths;
  std::optional<std::string_view> pattern, format;
  std::vector<NumberBound> lower, upper;
  int64_t least_integer = INT64_MIN, most_integer = INT64_MAX;
  bool has_no_integer = false;  // a bound is beyond them
  std::vector<Array> arrays;
  CountLimits n_items;
  std::vector<Object> objects;
  std::vector<std::string_view> required;
  std::vector<Choice> choices;
  std::vector<const json::value*> seen;
};

class SchemaReader {
 public:
  explicit SchemaReader(const json::value& root);

  SchemaPlace root() const { return {&root_, 0}; }
  Result<SchemaFacts> facts_of(const Schemas& schemas);
  // Adds one of a choice's schemas to the facts that have the choice.
  Status add_chosen(const SchemaFacts::Choice& choice, size_t i, SchemaFacts& facts);
  // Where a schema that is nothing but a $ref leads.
  Result<SchemaPlace> without_references(SchemaPlace place);

  SchemaPlace child(int32_t path, std::string_view name, const json::value& schema);
  Status spend(int64_t n_steps);
  std::string path_text(int32_t path) const;  // '#/properties/name'
  Error refuse(int32_t path, std::string_view why) const;

 private:
  using Names = std::vector<const json::value*>;
  struct PathPart {
    int32_t parent;
    std::string_view name;
    size_t index;  // in an array, where there is no name
  };

  Status add(SchemaPlace place, Names& within, SchemaFacts& facts);
  Status note_impossible(int32_t path, std::string_view why, SchemaFacts& facts) const;
  Status check_keywords(const json::object& schema, int32_t path);
  Status add_types(SchemaPlace place, SchemaFacts& facts);
  Status add_values(SchemaPlace place, SchemaFacts& facts);
  Status add_strings(SchemaPlace place, SchemaFacts& facts);
  Status add_numbers(SchemaPlace place, SchemaFacts& facts);
  Status add_arrays(SchemaPlace place, SchemaFacts& facts);
  Status add_objects(SchemaPlace place, SchemaFacts& facts);
  Status add_choices(SchemaPlace place, const Names& within, SchemaFacts& facts);
  Status add_all_of(SchemaPlace place, Names& within, SchemaFacts& facts);

  Result<std::optional<int64_t>> count(SchemaPlace place, std::string_view keyword);
  Status add_counts(SchemaPlace place, std::string_view min_name, std::string_view max_name, CountLimits& limits,
                    SchemaFacts& facts);
  Result<Schemas> list(SchemaPlace place, std::string_view keyword);
  Result<SchemaPlace> resolve(SchemaPlace place, const json::value& reference);
  SchemaPlace element(int32_t path, size_t index, const json::value& schema);

  const json::value& root_;
  std::vector<PathPart> paths_;
  int64_t n_steps_left_;
};

}  // namespace zinc
