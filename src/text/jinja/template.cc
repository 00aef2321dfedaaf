#include "text/jinja/template.h"

#include "base/utf8.h"
#include "text/jinja/parser.h"
#include "text/jinja/runtime.h"
#include "text/jinja/value_from_json.h"

namespace zinc::jinja {
namespace {

std::vector<Segment> segments_of(const TextBuilder& output) {
  std::vector<Segment> segments;
  size_t begin = 0;
  for (const Run& run : output.runs()) {
    segments.push_back({output.bytes().substr(begin, run.end - begin), run.from_input});
    begin = run.end;
  }
  return segments;
}

}  // namespace

Result<Template> Template::compile(std::string_view source) {
  if (source.size() > kMaxTemplateBytes) {
    return fail(ErrorCode::invalid_input, "template:1:1: the template has {} bytes; at most {} are allowed",
                source.size(), kMaxTemplateBytes);
  }
  if (!is_valid_utf8(source)) return fail(ErrorCode::invalid_input, "template:1:1: the template is not valid UTF-8");
  ZINC_TRY(program, parse(source));
  return Template(std::make_shared<const Program>(std::move(program)));
}

Result<std::vector<Segment>> Template::render(const std::vector<Variable>& variables, LocalTime now,
                                              const Limits& limits) const {
  Runtime rt(*program_, limits);
  rt.now = now;
  for (const Variable& variable : variables) {
    rt.set_global(variable.name, value_from_json(rt, *variable.value, variable.from_input));
  }
  TextBuilder output(rt);
  {
    const Output redirected(rt, output);
    rt.exec(program_->body);
  }
  if (rt.error()) return *rt.error();
  return segments_of(output);
}

bool Template::mentions(std::string_view name) const { return program_->find(name) != nullptr; }

}  // namespace zinc::jinja
