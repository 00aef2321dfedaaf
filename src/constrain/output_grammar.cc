#include "constrain/output_grammar.h"

#include <algorithm>
#include <utility>

#include "constrain/json_schema.h"
#include "text/xml_call_reader.h"

namespace zinc {
namespace {

using Expr = GrammarBuilder::Expr;
using Rule = GrammarBuilder::Rule;
using Arguments = CallSyntax::Arguments;
using Content = OutputSyntax::Content;

const json::value kAnyObject = {{"type", "object"}};

class OutputGrammarBuilder {
 public:
  OutputGrammarBuilder(OutputSyntax syntax, const TokenTrie& vocabulary)
      : syntax_(std::move(syntax)), calls_(syntax_.format.calls), vocabulary_(vocabulary) {}

  Result<Grammar> build() {
    std::vector<Expr> alternatives;
    if (!syntax_.tools.empty()) {
      ZINC_TRY(calls, all_calls());
      calls_expr_ = calls;
      if (!is_text_then_calls()) alternatives.push_back(calls);
    }
    if (syntax_.content != Content::none) alternatives.push_back(content());
    const Rule root = builder_.declare("output");
    const Expr body = builder_.choice(std::move(alternatives));
    builder_.define(root, has_channels() ? builder_.sequence({earlier_messages(), body}) : body);
    ZINC_TRY(grammar, builder_.finish(root));
    grammar.unenforced = std::move(unenforced_);
    return std::move(grammar);
  }

 private:
  bool has_channels() const { return !syntax_.format.channels.content_open.empty(); }
  bool is_text_then_calls() const {
    return syntax_.content == Content::any_text && !has_channels() && !syntax_.format.call_open.empty();
  }
  Expr marker(std::string_view text) { return builder_.text(vocabulary_.mark_control_tokens(text)); }

  Expr content() {
    if (syntax_.content == Content::grammar) {
      for (const std::string& part : syntax_.content_grammar->unenforced) unenforced_.push_back(part);
      const Expr text = builder_.rule(builder_.embed(std::move(*syntax_.content_grammar)));
      return has_channels() ? builder_.sequence({marker(syntax_.format.channels.content_open), text}) : text;
    }
    if (has_channels()) {
      const Expr text = builder_.text_without(syntax_.format.thinking.close);
      return builder_.sequence({marker(syntax_.format.channels.content_open), text});
    }
    if (is_text_then_calls()) {
      const Expr text = builder_.text_without(syntax_.format.call_open);
      return builder_.sequence({text, builder_.optional(calls_expr_)});
    }
    // Calls begin like any JSON object, so that content does not begin like that.
    const Expr first = builder_.chars(complement({{'{', '{'}, {'<', '<'}, {0, ' '}}));
    return builder_.optional(builder_.sequence({first, builder_.any_text()}));
  }

  // Reasoning and content before a call, each a message.
  Expr earlier_messages() {
    const ToolFormat& format = syntax_.format;
    const auto rest_of_message = [&] {
      return builder_.sequence({builder_.text_without(format.thinking.close), marker(format.thinking.close),
                                marker(format.channels.next_message)});
    };
    std::vector<Expr> kinds, parts;
    if (syntax_.may_reason) kinds.push_back(builder_.sequence({marker(format.thinking.open), rest_of_message()}));
    const bool may_have_preamble = syntax_.content == Content::any_text && !syntax_.tools.empty();
    if (may_have_preamble) {
      kinds.push_back(builder_.sequence({marker(format.channels.preamble_open), rest_of_message()}));
    }
    if (syntax_.starts_in_reasoning) parts.push_back(rest_of_message());
    if (!kinds.empty()) parts.push_back(builder_.repeat(builder_.choice(kinds), 0, GrammarBuilder::kNoLimit));
    return builder_.sequence(std::move(parts));
  }

  Result<Expr> all_calls() {
    std::vector<Expr> alternatives;
    for (const CallableTool& tool : syntax_.tools) {
      ZINC_TRY(call, one_call(tool));
      alternatives.push_back(call);
    }
    const Rule call = builder_.declare("call");
    builder_.define(call, builder_.choice(std::move(alternatives)));
    const bool is_single = calls_.is_single || !syntax_.allows_parallel_calls;
    const Expr another = builder_.sequence({marker(calls_.separator), builder_.rule(call)});
    const Expr others = is_single ? builder_.text("") : builder_.repeat(another, 0, GrammarBuilder::kNoLimit);
    return builder_.sequence({marker(calls_.begin), builder_.rule(call), others, marker(calls_.end)});
  }

  Result<Expr> one_call(const CallableTool& tool) {
    const json::value* schema = tool.parameters ? tool.parameters : &kAnyObject;
    GrammarBuilder trial;  // a failure would leave undefined rules behind
    const Status added = try_arguments(trial, tool.name, *schema);
    if (!added.ok()) {
      if (tool.is_strict) return tool_error(tool, added.error().message);
      unenforced_.push_back(tool_error(tool, added.error().message + "; the arguments may be any JSON object").message);
      schema = &kAnyObject;
    }
    for (const std::string& part : trial.unenforced()) {
      if (tool.is_strict) return tool_error(tool, part + "; this is not allowed with \"strict\": true");
      if (added.ok()) unenforced_.push_back(tool_error(tool, part).message);
    }
    ZINC_TRY(arguments, add_arguments(builder_, tool.name, *schema));
    const bool is_json_name = calls_.open.ends_with('"');
    std::string name = is_json_name ? to_json(json::string(tool.name)) : tool.name;
    if (is_json_name) name = name.substr(1, name.size() - 2);
    return builder_.sequence({marker(calls_.open), builder_.text(name), marker(calls_.before_arguments),
                              builder_.rule(arguments), marker(calls_.close)});
  }

  static Error tool_error(const CallableTool& tool, std::string_view why) {
    return fail(ErrorCode::invalid_input, "parameters of tool '{}': {}", tool.name, why);
  }

  Status try_arguments(GrammarBuilder& trial, std::string_view function, const json::value& schema) {
    ZINC_TRY(root, add_arguments(trial, function, schema));
    ZINC_TRY(made, trial.finish(root));
    return ok_status();
  }

  Result<Rule> add_arguments(GrammarBuilder& builder, std::string_view function, const json::value& schema) {
    if (calls_.arguments == Arguments::json) {
      return add_json_object_schema(builder, json_in(builder), schema);
    }
    if (calls_.arguments == Arguments::raw_strings) {
      const RawStrings raw{.quote = vocabulary_.mark_control_tokens(calls_.quote), .excluded = calls_.quote};
      return add_json_object_schema(builder, JsonGrammar(builder, raw), schema);
    }
    const XmlParameterTags tags;
    const ParameterSyntax parameters{
        .before_name = tags.before_name,
        .before_value = tags.before_value,
        .after_value = tags.after_value,
        .text = {.quote = "", .excluded = tags.excluded},
        .types = [&](std::string_view parameter) { return syntax_.tool_schemas->types(function, parameter); }};
    return add_parameter_schema(builder, json_in(builder), schema, parameters);
  }

  // The rules of JSON are shared by all tools.
  const JsonGrammar& json_in(GrammarBuilder& builder) {
    std::optional<JsonGrammar>& json = &builder == &builder_ ? json_ : trial_json_;
    if (&builder != &builder_ || !json) json.emplace(builder);
    return *json;
  }

  OutputSyntax syntax_;
  const CallSyntax& calls_;
  const TokenTrie& vocabulary_;
  GrammarBuilder builder_;
  std::optional<JsonGrammar> json_, trial_json_;
  Expr calls_expr_ = 0;
  std::vector<std::string> unenforced_;  // of the content, and of the tools with their names
};

}  // namespace

Result<Grammar> output_grammar(OutputSyntax syntax, const TokenTrie& vocabulary) {
  return OutputGrammarBuilder(std::move(syntax), vocabulary).build();
}

}  // namespace zinc
