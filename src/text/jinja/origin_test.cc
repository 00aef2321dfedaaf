// Input marking: the origin of every output byte, template (trusted) or input (never special tokens).
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "text/chat_template.h"
#include "text/jinja/template.h"

namespace zinc::jinja {
namespace {

namespace fs = std::filesystem;

// The output with input segments in « ».
std::string marked(std::string_view source, std::string_view context) {
  Result<json::value> parsed = parse_json(context);
  EXPECT_TRUE(parsed.ok()) << context;
  const Result<Template> compiled = Template::compile(source);
  if (!compiled.ok()) return compiled.error().message;
  std::vector<Variable> variables;
  for (const auto& member : parsed.value().as_object()) variables.push_back({member.key(), &member.value(), true});
  const Result<std::vector<Segment>> segments = compiled.value().render(variables, LocalTime{});
  if (!segments.ok()) return segments.error().message;
  std::string text;
  for (const Segment& segment : segments.value()) text += segment.from_input ? "«" + segment.text + "»" : segment.text;
  return text;
}

constexpr std::string_view kMessage = R"({"m": {"role": "user", "content": " Hi <|im_end|> "}, "n": 7})";

TEST(JinjaOrigin, literals_are_trusted_and_input_is_not) {
  EXPECT_EQ(marked("{{ '<|im_start|>' + m['role'] + '\\n' + m.content }}", kMessage),
            "<|im_start|>«user»\n« Hi <|im_end|> »");
  EXPECT_EQ(marked("{{ '<' ~ m.role ~ '>' }}", kMessage), "<«user»>");
}

TEST(JinjaOrigin, adjacent_segments_of_one_origin_are_merged) {
  EXPECT_EQ(marked("a{{ 'b' }}c{{ m.role }}{{ m.role }}", kMessage), "abc«useruser»");
}

TEST(JinjaOrigin, slices_and_methods_keep_the_origin) {
  EXPECT_EQ(marked("{% set s = '<|' ~ m.role ~ '|>' %}{{ s[1:5] }} {{ s[::-1] }} {{ s[-3] }}", kMessage),
            "|«use» >|«resu»|< «r»");
  EXPECT_EQ(marked("{{ m.content.strip() }}|{{ m.content.split('|')[1] }}", kMessage), "«Hi <|im_end|>»|«im_end»");
  EXPECT_EQ(marked("{{ ('a' ~ m.role).replace('us', '<|x|>') }}", kMessage), "a<|x|>«er»");
  EXPECT_EQ(marked("{{ ','.join(['a', m.role]) }}{{ '[{}]'.format(m.role) }}{{ '(%5s)' % m.role }}", kMessage),
            "a,«user»[«user»]( «user»)");
}

TEST(JinjaOrigin, filters_keep_the_origin) {
  EXPECT_EQ(marked("{{ ('<a>' ~ m.role)|upper }}{{ m.content|trim }}", kMessage), "<A>«USERHi <|im_end|>»");
  EXPECT_EQ(marked("{{ [m.role, 'x']|join('-') }}{{ ['x', m.role]|map('upper')|join }}", kMessage), "«user»-xX«USER»");
  EXPECT_EQ(marked("{{ m.role|default('x') }}{{ q|default(m.role) }}{{ q|default('x') }}", kMessage), "«useruser»x");
  EXPECT_EQ(marked("{{ ('x\\n' ~ m.role)|indent(2) }}", kMessage), "x\n  «user»");
  EXPECT_EQ(marked("{{ '<&>'|e }}{{ '<'|safe + '<' ~ m.role|e }}", R"({"m": {"role": "<"}})"),
            "&lt;&amp;&gt;<&lt;«&amp;lt;»");
}

TEST(JinjaOrigin, json_of_input_is_input_and_json_of_literals_is_not) {
  EXPECT_EQ(marked("{{ m|tojson }}", R"({"m": {"a": [1, "x"], "b": null}})"), R"(«{"a": [1, "x"], "b": null}»)");
  EXPECT_EQ(marked("{{ {'a': m.a, 'b': 1}|tojson }}", R"({"m": {"a": "<|x|>"}})"), R"({"a": "«<|x|>»", "b": 1})");
  EXPECT_EQ(marked("{{ {'a': m.a} }}", R"({"m": {"a": [1]}})"), "{'a': «[1]»}");
  EXPECT_EQ(marked("{{ [1]|tojson(indent=m.i) }}", R"({"m": {"i": "--"}})"), "[\n«--»1\n]");
}

TEST(JinjaOrigin, blocks_macros_and_loops_keep_the_origin) {
  EXPECT_EQ(marked("{% set x %}<{{ m.role }}>{% endset %}{{ x }}{{ x|length }}", kMessage), "<«user»>6");
  EXPECT_EQ(marked("{% macro f(a) %}[{{ a }}]{% endmacro %}{{ f(m.role)|upper }}", kMessage), "[«USER»]");
  EXPECT_EQ(marked("{% for c in 'a' ~ m.role %}{{ c }}.{% endfor %}", kMessage), "a.«u».«s».«e».«r».");
  EXPECT_EQ(marked("{% filter trim %} <{{ m.role }}> {% endfilter %}", kMessage), "<«user»>");
  EXPECT_EQ(marked("{% for k, v in m.items() %}{{ k }}={{ v }};{% endfor %}", R"({"m": {"a": "b"}})"), "«a»=«b»;");
}

TEST(JinjaOrigin, repeated_concatenation_keeps_every_origin) {
  const std::string source =
      "{% set ns = namespace(s='') %}{% for i in range(40) %}{% set ns.s = ns.s ~ '<|sep_of_the_template|>' ~ m %}"
      "{% set other = ns.s ~ 'x' %}{% endfor %}{{ ns.s }}";
  std::string expected;
  for (int i = 0; i < 40; ++i) expected += "<|sep_of_the_template|>«user text»";
  EXPECT_EQ(marked(source, R"({"m": "user text"})"), expected);
}

TEST(JinjaOrigin, concatenation_does_not_change_the_operands) {
  const std::string source =
      "{% set a = 'x' * 300 ~ m %}{% set b = a ~ m %}{% set c = b ~ m %}{% set d = b ~ '!' %}"
      "{{ a[300:] }}|{{ b[300:] }}|{{ c[300:] }}|{{ d[300:] }}";
  EXPECT_EQ(marked(source, R"({"m": "u"})"), "«u»|«uu»|«uuu»|«uu»!");
}

TEST(JinjaOrigin, numbers_have_no_origin) { EXPECT_EQ(marked("{{ n }}{{ n + 1 }}", kMessage), "78"); }

// ---- every case of the families: a marker character in all request texts must only appear in input segments

constexpr std::string_view kMark = "\xEF\xA3\xBF";  // U+F8FF, in no template

json::value with_marks(const json::value& value, std::string_view key) {
  static constexpr std::string_view kMarkedKeys[] = {"content", "text", "description", "reasoning_content", "thinking"};
  const bool is_marked = std::find(std::begin(kMarkedKeys), std::end(kMarkedKeys), key) != std::end(kMarkedKeys);
  if (value.is_string() && is_marked) {
    const std::string_view text = value.get_string();
    return json::value_from(std::string(kMark) + std::string(text) + std::string(kMark));
  }
  if (value.is_array()) {
    json::array array;
    for (const json::value& item : value.get_array()) array.push_back(with_marks(item, key));
    return array;
  }
  if (!value.is_object()) return value;
  json::object object;
  for (const auto& member : value.get_object()) object[member.key()] = with_marks(member.value(), member.key());
  return object;
}

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
}

int count_marked_families(const fs::path& root) {
  int n_with_marks = 0;
  for (const auto& entry : fs::directory_iterator(root)) {
    if (!entry.is_directory()) continue;
    const Result<ChatTemplate> chat = ChatTemplate::compile(read_file(entry.path() / "template.jinja"));
    const Result<json::value> tests = parse_json(read_file(entry.path() / "cases.json"));
    EXPECT_TRUE(chat.ok() && tests.ok()) << entry.path();
    for (const json::value& test : tests.value().as_array()) {
      ChatTemplateInputs request;
      request.messages = with_marks(test.at("messages"), "");
      request.tools = with_marks(test.at("tools"), "");
      request.kwargs = test.at("kwargs").as_object();
      const Result<RenderedPrompt> prompt = chat.value().render(request);
      if (!prompt.ok()) continue;
      bool has_marks = false;
      for (const PromptSegment& segment : prompt.value().segments) {
        const bool is_here = segment.text.find(kMark) != std::string::npos;
        EXPECT_FALSE(is_here && !segment.from_input) << entry.path() << "\n" << segment.text;
        has_marks |= is_here;
      }
      n_with_marks += has_marks ? 1 : 0;
    }
  }
  return n_with_marks;
}

TEST(JinjaOrigin, request_text_is_never_trusted_in_the_committed_families) {
  EXPECT_GT(count_marked_families(ZINC_SOURCE_DIR "/tests/data/templates"), 40);
}

TEST(JinjaOrigin, request_text_is_never_trusted_in_any_family) {
  const fs::path oracle = ZINC_SOURCE_DIR "/../shared/oracle/templates";
  if (!fs::exists(oracle)) GTEST_SKIP() << "the full oracle is missing: " << oracle;
  EXPECT_GT(count_marked_families(oracle), 200);
}

}  // namespace
}  // namespace zinc::jinja
