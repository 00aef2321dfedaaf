// A compiled Jinja template. Immutable: any number of threads may render it at the same time. The language is that of
// Python's jinja2 as the transformers library sets it up (sandboxed, trim_blocks, lstrip_blocks, loopcontrols,
// `generation`, tojson, raise_exception, strftime_now). Templates are untrusted: limits.h bounds them.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "text/jinja/limits.h"
#include "text/jinja/strftime.h"

namespace zinc::jinja {

struct Program;

// A segment of the output with one origin: template text or input.
struct Segment {
  std::string text;
  bool from_input;
};

struct Variable {
  std::string_view name;
  const json::value* value;
  bool from_input;
};

class Template {
 public:
  // An error reads "template:LINE:COL: message", here and from render().
  static Result<Template> compile(std::string_view source);

  // Neighboring segments differ in origin; none is empty. Later `variables` override earlier ones.
  Result<std::vector<Segment>> render(const std::vector<Variable>& variables, LocalTime now,
                                      const Limits& limits = {}) const;

  bool mentions(std::string_view name) const;  // whether the template uses a variable of that name

 private:
  explicit Template(std::shared_ptr<const Program> program) : program_(std::move(program)) {}
  std::shared_ptr<const Program> program_;
};

}  // namespace zinc::jinja
