// Conformance with Python's jinja2: expected outputs in tests/data/templates (a subset) and ../shared/oracle/templates
// (all cases, if present).
#include "text/jinja/template.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include "text/chat_template.h"

namespace zinc::jinja {
namespace {

namespace fs = std::filesystem;

const fs::path kOwnData = ZINC_SOURCE_DIR "/tests/data/templates";
const fs::path kOracle = ZINC_SOURCE_DIR "/../shared/oracle/templates";
constexpr LocalTime kNow = std::chrono::local_days(std::chrono::year(2026) / 1 / 2) + std::chrono::hours(3) +
                           std::chrono::minutes(4) + std::chrono::seconds(5);

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
}

json::value read_json(const fs::path& path) {
  Result<json::value> parsed = parse_json(read_file(path));
  EXPECT_TRUE(parsed.ok()) << path << (parsed.ok() ? "" : parsed.error().message);
  return parsed.ok() ? parsed.value() : json::value();
}

std::string text_or(const json::object& object, std::string_view key, std::string_view fallback) {
  const json::value* const value = object.if_contains(key);
  return std::string(value && value->is_string() ? std::string_view(value->get_string()) : fallback);
}

std::string joined(const std::vector<Segment>& segments) { return RenderedPrompt{segments}.text(); }

Result<std::string> render(std::string_view source, const json::object& context) {
  ZINC_TRY(compiled, Template::compile(source));
  std::vector<Variable> variables;
  for (const auto& member : context) variables.push_back({member.key(), &member.value(), true});
  ZINC_TRY(segments, compiled.render(variables, kNow));
  return joined(segments);
}

bool has_position(std::string_view message) {
  unsigned line = 0, column = 0;
  return std::sscanf(std::string(message).c_str(), "template:%u:%u: ", &line, &column) == 2 && line > 0 && column > 0;
}

// Checks one conformance case; returns the failure or "".
std::string conformance_failure(const json::object& test) {
  const Result<std::string> text = render(test.at("template").as_string(), test.at("context").as_object());
  if (const json::value* const expected = test.if_contains("expected")) {
    if (!text.ok()) return text.error().message;
    return text.value() == expected->as_string() ? "" : "got: " + text.value();
  }
  if (!text.ok()) return has_position(text.error().message) ? "" : "no position: " + text.error().message;
  const json::value* const alternative = test.if_contains("or_expected");
  return alternative && text.value() == alternative->as_string() ? "" : "rendered instead of failing: " + text.value();
}

void run_conformance(const fs::path& path) {
  std::map<std::string, int> n_cases;
  int n_failed = 0;
  const json::value tests = read_json(path);
  for (const json::value& test : tests.as_array()) {
    const json::object& row = test.as_object();
    const std::string failure = conformance_failure(row);
    ++n_cases[text_or(row, "group", "?") + " " + text_or(row, "level", "")];
    n_failed += failure.empty() ? 0 : 1;
    EXPECT_EQ(failure, "") << std::string(row.at("template").as_string()).substr(0, 400);
  }
  for (const auto& [group, n] : n_cases) std::printf("  %-28s %4d\n", group.c_str(), n);
  std::printf("  failed %d\n", n_failed);
  EXPECT_FALSE(n_cases.empty());
}

ChatTemplateInputs request_of(const json::object& test) {
  ChatTemplateInputs request;
  request.messages = test.at("messages");
  request.tools = test.at("tools");
  request.add_generation_prompt = test.at("add_generation_prompt").as_bool();
  request.kwargs = test.at("kwargs").as_object();
  request.bos_token = text_or(request.kwargs, "bos_token", "");
  request.eos_token = text_or(request.kwargs, "eos_token", "");
  request.now = kNow;
  return request;
}

std::string family_failure(const ChatTemplate& chat, const json::object& test) {
  const Result<RenderedPrompt> prompt = chat.render(request_of(test));
  if (const json::value* const expected = test.if_contains("expected")) {
    if (!prompt.ok()) return prompt.error().message;
    return prompt.value().text() == expected->as_string() ? "" : "got: " + prompt.value().text();
  }
  if (prompt.ok()) return "rendered instead of failing";
  const bool is_own_message = text_or(test, "error_kind", "") == "raise_exception";
  const std::string& message = prompt.error().message;
  return !is_own_message || message.ends_with(": " + text_or(test, "error", "?")) ? "" : "message: " + message;
}

void run_family(const fs::path& folder) {
  const Result<ChatTemplate> chat = ChatTemplate::compile(read_file(folder / "template.jinja"));
  ASSERT_TRUE(chat.ok()) << folder << ": " << chat.error().message;
  int n_cases = 0, n_failed = 0;
  const json::value tests = read_json(folder / "cases.json");
  for (const json::value& test : tests.as_array()) {
    const std::string failure = family_failure(chat.value(), test.as_object());
    EXPECT_EQ(failure, "") << folder.filename() << " " << text_or(test.as_object(), "name", "?");
    ++n_cases;
    n_failed += failure.empty() ? 0 : 1;
  }
  std::printf("  %-22s %3d cases, %d failed\n", folder.filename().c_str(), n_cases, n_failed);
  EXPECT_GT(n_cases, 0);
}

void run_families(const fs::path& folder) {
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.is_directory()) run_family(entry.path());
  }
}

TEST(JinjaTemplate, agrees_with_python_on_the_committed_cases) { run_conformance(kOwnData / "conformance.json"); }

TEST(JinjaTemplate, renders_the_committed_families_as_python_does) { run_families(kOwnData); }

TEST(JinjaTemplate, agrees_with_python_on_all_conformance_cases) {
  if (!fs::exists(kOracle)) GTEST_SKIP() << "the full oracle is missing: " << kOracle;
  run_conformance(kOracle / "jinja_conformance.json");
}

TEST(JinjaTemplate, renders_every_family_of_the_oracle_as_python_does) {
  if (!fs::exists(kOracle)) GTEST_SKIP() << "the full oracle is missing: " << kOracle;
  run_families(kOracle);
}

}  // namespace
}  // namespace zinc::jinja
