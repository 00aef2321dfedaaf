// Reads the fields of a JSON object by name and type. What is missing or null is nullopt; what has the wrong type or
// lies out of range is an error that names the field, its range and what was found.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "server/api_error.h"

namespace zinc {

// One field of a request, for the check of unknown ones and for the OpenAPI document.
struct FieldDoc {
  std::string_view name;
  std::string_view type;  // of JSON: "string", "integer", "number", "boolean", "array", "object"; "" for several
  std::string_view text;
};

// Why a known field cannot be had.
struct RefusedField {
  std::string_view name, why;
};

std::string_view json_type(const json::value& value);  // "a string", for messages
std::string text_of(const json::string& text);

class FieldReader {
 public:
  // `path` is what stands before a field's name in messages: "", or "messages[3].". Both must outlive the reader.
  FieldReader(const json::object& object, std::string path, RequestErrors& errors)
      : object_(object), path_(std::move(path)), errors_(errors) {}

  const json::value* value(std::string_view name) const;  // nullptr: missing or null
  std::optional<bool> boolean(std::string_view name) const;
  std::optional<int64_t> integer(std::string_view name, int64_t low, int64_t high) const;
  std::optional<double> number(std::string_view name) const;
  std::optional<std::string> text(std::string_view name) const;
  const json::array* array(std::string_view name) const;
  const json::object* object(std::string_view name) const;

  std::string required_text(std::string_view name) const;  // an error where it is missing
  // A string, or an array of them.
  std::vector<std::string> texts(std::string_view name) const;

  // An error for the first field that is in none of the lists.
  void refuse_unknown(std::initializer_list<std::span<const FieldDoc>> known,
                      std::span<const RefusedField> refused = {}) const;

  const std::string& path() const { return path_; }
  std::string name_of(std::string_view field) const { return path_ + std::string(field); }
  RequestErrors& errors() const { return errors_; }

 private:
  void expected(std::string_view name, std::string_view what, const json::value& found) const;

  const json::object& object_;
  std::string path_;
  RequestErrors& errors_;
};

// Calls `take` with the fields of each element, until something is wrong; all must be objects. `name` is the list's:
// fields of the first element of "tools" are called "tools[0].name".
void for_each_object(const json::array& list, std::string_view name, RequestErrors& errors,
                     const std::function<void(const FieldReader& fields)>& take);

}  // namespace zinc
