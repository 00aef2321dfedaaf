// `zinc debug parse`: reads model output from stdin and prints the parsed message as JSON.
#include <iostream>
#include <iterator>
#include <memory>

#include "base/json.h"
#include "base/mapped_file.h"
#include "cli/command.h"
#include "text/message_parser.h"

namespace zinc::command_debug_parse {
namespace {

struct ParseOptions {
  std::string family;
  bool is_partial = false;
  std::string thinking = "on";
  std::string tools_path;
};

Result<ToolSchemas> read_tools(const std::string& path) {
  ZINC_TRY(file, MappedFile::open(path));
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  const Result<json::value> parsed = parse_json(text);
  if (!parsed.ok()) return fail(ErrorCode::invalid_input, "{}: {}", path, parsed.error().message);
  Result<ToolSchemas> tools = ToolSchemas::read(parsed.value());
  if (!tools.ok()) return fail(ErrorCode::invalid_input, "{}: {}", path, tools.error().message);
  return tools;
}

Status run(const ParseOptions& options) {
  const ToolFormat* format = find_tool_format(options.family);
  if (!format) {
    return fail(ErrorCode::not_found, "unknown family '{}'; known families: {}", options.family, tool_format_names());
  }
  ParserOptions parser_options;
  parser_options.thinking = options.thinking == "on";
  if (!options.tools_path.empty()) {
    ZINC_TRY(tools, read_tools(options.tools_path));
    parser_options.tools = std::move(tools);
  }
  const std::string output((std::istreambuf_iterator<char>(std::cin)), std::istreambuf_iterator<char>());
  fmt::print("{}\n", message_json(parse_message(*format, parser_options, output, options.is_partial)));
  return ok_status();
}

std::function<Status()> declare(CLI::App& app) {
  const auto options = std::make_shared<ParseOptions>();
  app.add_option("--family", options->family, "output format of the model: " + tool_format_names())->required();
  app.add_flag("--partial", options->is_partial, "more text may follow: print only the parts that are already certain");
  app.add_option("--thinking", options->thinking, "whether the request enabled thinking")
      ->check(CLI::IsMember({"on", "off"}));
  app.add_option("--tools", options->tools_path, "JSON file with the tools, as in an OpenAI request")
      ->option_text("FILE");
  return [options] { return run(*options); };
}

}  // namespace

extern const Command k_command_debug_parse = {
    .path = "debug parse", .summary = "read model output from stdin, print the message as JSON", .declare = declare};

}  // namespace zinc::command_debug_parse
