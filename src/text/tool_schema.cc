#include "text/tool_schema.h"

namespace zinc {
namespace {

constexpr int kMaxSchemaDepth = 8;         // of nested anyOf; deeper means "any type"
constexpr int kMaxSchemaVisits = 1 << 17;  // in all tools of a request: references multiply alternatives

ParameterTypes named_type(std::string_view name) {
  constexpr std::pair<std::string_view, ParameterTypes> kTypes[] = {
      {"string", kStringType}, {"number", kNumberType}, {"integer", kNumberType}, {"boolean", kBooleanType},
      {"null", kNullType},     {"object", kObjectType}, {"array", kArrayType},
  };
  for (const auto& [type, bit] : kTypes) {
    if (type == name) return bit;
  }
  return 0;
}

ParameterTypes type_of(const json::value& value) {
  switch (value.kind()) {
    case json::kind::string:
      return kStringType;
    case json::kind::bool_:
      return kBooleanType;
    case json::kind::null:
      return kNullType;
    case json::kind::object:
      return kObjectType;
    case json::kind::array:
      return kArrayType;
    default:
      return kNumberType;
  }
}

struct SchemaLookup {
  const json::value& root;  // of the references
  int& n_visits_left;
};
ParameterTypes schema_types(const json::value& schema, const SchemaLookup& lookup, int depth);

// The schema that "#/$defs/name" names; nullptr: none.
const json::value* find_reference(const json::value& root, const json::value& reference) {
  if (!reference.is_string() || !reference.get_string().starts_with("#/")) return nullptr;
  boost::system::error_code error;
  return root.find_pointer(reference.get_string().subview(1), error);
}

// The union of all alternatives; "any" if one of them is.
ParameterTypes alternatives(const json::array& schemas, const SchemaLookup& lookup, int depth) {
  ParameterTypes all = 0;
  for (const json::value& schema : schemas) {
    const ParameterTypes types = schema_types(schema, lookup, depth + 1);
    if (types == 0) return 0;
    all = static_cast<ParameterTypes>(all | types);
  }
  return all;
}

ParameterTypes schema_types(const json::value& schema, const SchemaLookup& lookup, int depth) {
  const json::object* object = schema.if_object();
  if (!object || depth > kMaxSchemaDepth || --lookup.n_visits_left < 0) return 0;
  if (const json::value* reference = object->if_contains("$ref")) {
    const json::value* target = find_reference(lookup.root, *reference);
    return target ? schema_types(*target, lookup, depth + 1) : ParameterTypes{0};
  }
  if (const json::value* type = object->if_contains("type")) {
    if (type->is_string()) return named_type(type->get_string());
    ParameterTypes all = 0;
    if (const json::array* names = type->if_array()) {
      for (const json::value& name : *names) {
        if (name.is_string()) all = static_cast<ParameterTypes>(all | named_type(name.get_string()));
      }
    }
    return all;
  }
  if (const json::value* constant = object->if_contains("const")) return type_of(*constant);
  if (const json::value* choices = object->if_contains("enum"); choices && choices->is_array()) {
    ParameterTypes all = 0;
    for (const json::value& choice : choices->get_array()) all = static_cast<ParameterTypes>(all | type_of(choice));
    return all;
  }
  if (const json::value* all = object->if_contains("allOf"); all && all->is_array() && all->get_array().size() == 1) {
    return schema_types(all->get_array().front(), lookup, depth + 1);
  }
  for (const char* key : {"anyOf", "oneOf"}) {
    const json::value* schemas = object->if_contains(key);
    if (schemas && schemas->is_array()) return alternatives(schemas->get_array(), lookup, depth);
  }
  return 0;
}

const json::object* member_object(const json::object& object, std::string_view key) {
  const json::value* member = object.if_contains(key);
  return member ? member->if_object() : nullptr;
}

}  // namespace

Result<ToolSchemas> ToolSchemas::read(const json::value& tools) {
  if (tools.is_null()) return ToolSchemas();
  const json::array* list = tools.if_array();
  if (!list) return fail(ErrorCode::invalid_input, "tools: expected an array of functions");
  ToolSchemas schemas;
  int n_visits_left = kMaxSchemaVisits;
  for (size_t i = 0; i < list->size(); ++i) {
    const json::object* tool = (*list)[i].if_object();
    const json::object* wrapped = tool ? member_object(*tool, "function") : nullptr;
    const json::object* function = wrapped ? wrapped : tool;
    const json::value* name = function ? function->if_contains("name") : nullptr;
    if (!name || !name->is_string() || name->get_string().empty()) {
      return fail(ErrorCode::invalid_input, "tools[{}]: expected an object with a function that has a \"name\"", i);
    }
    Parameters& parameters = schemas.functions_[std::string(name->get_string())];
    const json::object* schema = member_object(*function, "parameters");
    const json::object* properties = schema ? member_object(*schema, "properties") : nullptr;
    if (!properties) continue;
    const SchemaLookup lookup{.root = function->at("parameters"), .n_visits_left = n_visits_left};
    for (const auto& [key, property] : *properties) parameters[std::string(key)] = schema_types(property, lookup, 0);
  }
  return schemas;
}

ParameterTypes ToolSchemas::types(std::string_view function, std::string_view parameter) const {
  const auto parameters = functions_.find(function);
  if (parameters == functions_.end()) return kStringType;
  const auto types = parameters->second.find(parameter);
  return types == parameters->second.end() ? ParameterTypes{0} : types->second;
}

}  // namespace zinc
