// Hostile templates: each must fail quickly with an error that gives a position.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <ctime>

#include "text/jinja/template.h"

namespace zinc::jinja {
namespace {

struct Outcome {
  std::string message;  // empty: it rendered
  std::string text;
  double seconds;  // processor time
};

Outcome run(std::string_view source, const json::value& x = nullptr) {
  const std::clock_t begin = std::clock();
  Outcome outcome;
  const Result<Template> compiled = Template::compile(source);
  if (compiled.ok()) {
    const Result<std::vector<Segment>> segments = compiled.value().render({{"x", &x, true}}, LocalTime{});
    if (segments.ok()) {
      for (const Segment& segment : segments.value()) outcome.text += segment.text;
    } else {
      outcome.message = segments.error().message;
    }
  } else {
    outcome.message = compiled.error().message;
  }
  outcome.seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  return outcome;
}

// A release build takes less than 0.1 s for each, sanitizers up to 1, on a busy machine 2. Without limits most would
// take minutes.
constexpr double kMaxSeconds = 10.0;

void expect_stopped(std::string_view source) {
  const Outcome outcome = run(source);
  unsigned line = 0, column = 0;
  EXPECT_EQ(std::sscanf(outcome.message.c_str(), "template:%u:%u: ", &line, &column), 2)
      << source.substr(0, 200) << "\n"
      << outcome.message;
  EXPECT_LT(outcome.seconds, kMaxSeconds) << source.substr(0, 200);
}

std::string repeat(std::string_view text, size_t n) {
  std::string repeated;
  for (size_t i = 0; i < n; ++i) repeated += text;
  return repeated;
}

TEST(JinjaBudget, endless_loops_exceed_the_step_limit) {
  expect_stopped("{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}");
  expect_stopped("{% for i in range(100000) %}{% for j in range(100000) %}{{ i }}{% endfor %}{% endfor %}");
  expect_stopped(repeat("{% for x in [1,2,3,4] %}", 60) + "x" + repeat("{% endfor %}", 60));
  expect_stopped("{% for i in range(100000) %}{% set y = -1 in range(100000) %}{% endfor %}");
  expect_stopped("{% for i in range(1000) %}{% set x = range(100000)|sort(reverse=true) %}{% endfor %}");
  expect_stopped("{% for i in range(1000) %}{% set x = range(100000)|unique|list %}{% endfor %}");
}

TEST(JinjaBudget, recursion_is_limited) {
  expect_stopped("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}");
  expect_stopped("{% macro f(n) %}{% if n %}{{ f(n-1) }}{{ f(n-1) }}{% endif %}{% endmacro %}{{ f(60) }}");
  expect_stopped("{% macro f(n) %}{% call f(n) %}{{ caller() }}{% endcall %}{% endmacro %}{{ f(0) }}");
  expect_stopped("{% macro f(n) %}{{ [[[[[[f(n)|upper|lower]]]]]]|join|trim }}{% endmacro %}{{ f(0) }}");
  expect_stopped(
      "{% macro f(n) %}{% for i in [1] %}{% if true %}{% set x %}{% filter upper %}{{ f(n) }}{% endfilter %}"
      "{% endset %}{% endif %}{% endfor %}{% endmacro %}{{ f(0) }}");
  expect_stopped("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}");
  expect_stopped("{% macro f(n=f()) %}{% endmacro %}{{ f() }}");
}

TEST(JinjaBudget, string_and_list_sizes_are_limited) {
  expect_stopped("{{ ('x' * 1000000 * 1000000)|length }}");
  expect_stopped("{% for i in range(100000) %}{% set x = 'x' * 1000000 %}{% endfor %}");
  expect_stopped("{% set n = namespace(s='x') %}{% for i in range(60) %}{% set n.s = n.s ~ n.s %}{% endfor %}");
  expect_stopped("{% set n = namespace(s=[1]) %}{% for i in range(60) %}{% set n.s = n.s + n.s %}{% endfor %}");
  expect_stopped("{{ [0] * 10000000000 }}");
  expect_stopped("{{ 'x'.center(10000000000) }}");
  expect_stopped("{{ 'x'.zfill(10000000000) }}");
  expect_stopped("{{ '%9999999999d' % 1 }}");
  expect_stopped("{{ '{:>9999999999}'.format(1) }}");
  expect_stopped("{{ '{:.999999999f}'.format(1.5) }}");
  expect_stopped("{{ ('a' * 100000).replace('a', 'b' * 100000) }}");
  expect_stopped("{{ 'a\nb'|indent(10000000000) }}");
  expect_stopped("{{ [1]|batch(10000000000, 0)|list }}");
  expect_stopped("{{ [1]|slice(10000000000)|list }}");
  expect_stopped("{% for i in range(100000) %}{{ 'x' * 100000 }}{% endfor %}");
}

TEST(JinjaBudget, values_with_exponential_expansion_are_limited) {
  const std::string doubling =
      "{% set n = namespace(s=(1,), t=(1,)) %}{% for i in range(60) %}{% set n.s = (n.s, n.s) %}"
      "{% set n.t = (n.t, n.t) %}{% endfor %}";
  expect_stopped(doubling + "{{ n.s }}");
  expect_stopped(doubling + "{{ n.s|tojson }}");
  expect_stopped(doubling + "{{ n.s == n.t }}");
  expect_stopped(doubling + "{{ n.s < n.t }}");
  expect_stopped(doubling + "{{ {n.s: 1, n.t: 2} }}");
  expect_stopped(doubling + "{{ [n.s, n.t]|unique|list }}");
  expect_stopped("{% set n = namespace() %}{% set n.a = [n, n] %}{{ n }}");
  expect_stopped("{% set n = namespace(s=[]) %}{% for i in range(9999) %}{% set n.s = [n.s] %}{% endfor %}{{ n.s }}");
}

TEST(JinjaBudget, string_searches_are_linear) {
  expect_stopped(
      "{% set a = 'a' * 2000000 %}{% set b = 'a' * 1000000 ~ 'b' %}"
      "{% for i in range(1000) %}{{ a.find(b) }}{{ a.rfind(b) }}{{ a.count(b) }}{% endfor %}");
  const Outcome once = run("{{ ('a' * 1000000).find('a' * 500000 ~ 'b') }}");
  EXPECT_EQ(once.text, "-1");
  EXPECT_LT(once.seconds, kMaxSeconds);
}

// s has a million bytes; each line reads all of them in every iteration and must be charged for it.
TEST(JinjaBudget, reading_a_long_string_is_charged_by_length) {
  const std::string begin = "{% set s = 'a' * 1000000 %}{% set t = 'a' * 999999 ~ 'b' %}{% set u = 'a' * 1000000 %}";
  const auto expect_stopped_in_loop = [&](std::string_view before, std::string_view body) {
    expect_stopped(fmt::format("{}{}{{% for i in range(100000) %}}{}{{% endfor %}}", begin, before, body));
  };
  expect_stopped_in_loop("{% set p = (t,) * 100000 %}", "{% if s.startswith(p) %}x{% endif %}");
  expect_stopped_in_loop("", "{% if s.startswith(t) %}x{% endif %}");
  expect_stopped_in_loop("{% set e = 'b' ~ s %}", "{% if ('c' ~ s).endswith(e) %}x{% endif %}");
  expect_stopped_in_loop("", "{% set x = s.removeprefix(t) %}");
  expect_stopped_in_loop("{% set e = 'b' ~ 'a' * 999999 %}", "{% set x = s.removesuffix(e) %}");
  expect_stopped_in_loop("{% set d = {s: 1} %}", "{% set x = d[u] %}");
  expect_stopped_in_loop("{% set d = {s: 1} %}", "{% set x = d.get(u) %}");
  expect_stopped_in_loop("{% set d = {s: 1} %}", "{% set x = u in d %}");
  expect_stopped_in_loop("{% set d = {s: 1}, e = {u: 1} %}", "{% set x = d == e %}");
  expect_stopped_in_loop("{% set d = {s: 1, 1: 1, 2: 1, 3: 1, 4: 1, 5: 1, 6: 1, 7: 1, 8: 1} %}", "{% set x = d[t] %}");
  expect_stopped_in_loop("", "{% set x = {s: 1, t: 2} %}");
  expect_stopped_in_loop("", "{% set x = dict([(s, 1), (u, 2)]) %}");
  expect_stopped_in_loop("", "{% set x = [s, t, u]|unique(true)|list %}");
  expect_stopped_in_loop("{% set n = namespace({s: 1}) %}", "{% set x = n[u] %}");
  expect_stopped_in_loop("", "{% set x = s == u %}");
  expect_stopped_in_loop("", "{% set x = s < u %}");
  expect_stopped_in_loop("", "{% set x = [s] == [u] %}");
  expect_stopped_in_loop("", "{% set x = u in [s, t] %}");
  expect_stopped_in_loop("", "{% set x = t in s %}");
  expect_stopped_in_loop("", "{% set x = [s, t, u]|sort(case_sensitive=true) %}");
  expect_stopped_in_loop("", "{% set x = [s, t, u]|max(case_sensitive=true) %}");
  expect_stopped_in_loop("", "{% set x = 1|attr(s) %}{% set x = [1]|map(attribute=s)|list %}");
  expect_stopped_in_loop("{% set b = ' ' * 1000000 %}", "{% set x = b|int %}");
  expect_stopped_in_loop("{% set b = ' ' * 1000000 %}", "{% set x = b|float %}");
  expect_stopped_in_loop("{% set b = '<' ~ s ~ '>' %}", "{% set x = b|striptags %}");
  expect_stopped_in_loop("{% set b = '%' ~ '-' * 1000000 ~ 's' %}", "{% set x = b % 1 %}");
  expect_stopped_in_loop("{% set b = '%.' ~ '0' * 1000000 ~ 's' %}", "{% set x = b % 1 %}");
  expect_stopped_in_loop("{% set b = '{:' ~ '0' * 1000000 ~ '}' %}", "{% set x = b.format(1) %}");
  expect_stopped_in_loop("{% set b = '%(' ~ s ~ ')s' %}{% set d = {s: ''} %}", "{% set x = b % d %}");
}

TEST(JinjaBudget, string_with_many_origin_runs_is_linear) {
  const json::value x = json::value_from(std::string("<"));
  for (const std::string_view use :
       {"replace('b', 'c')", "split('b')|length", "striptags()|length", "format()", "splitlines()|length"}) {
    const bool is_filter = use.starts_with("striptags");
    const Outcome outcome = run(fmt::format("{{{{ ((x ~ 'b') * 150000){}{} }}}}", is_filter ? "|" : ".", use), x);
    EXPECT_LT(outcome.seconds, kMaxSeconds) << use;
  }
  EXPECT_LT(run("{{ ((x ~ '%%') * 150000) % () }}", x).seconds, kMaxSeconds);
  EXPECT_EQ(run("{{ ((x ~ 'b') * 20000).split('b')|length }}", x).text, "20001");
}

TEST(JinjaBudget, name_lookup_is_charged_by_the_names_searched) {
  std::string attributes, variables, params, args;
  for (int i = 0; i < 10'000; ++i) attributes += fmt::format("{{%set n.a{}=1%}}", i);
  for (int i = 0; i < 15; ++i) variables += fmt::format("{{%set a{}=1%}}", i);
  for (int i = 0; i < 2'000; ++i) params += fmt::format("a{},", i);
  for (int i = 0; i < 10'000; ++i) args += fmt::format("b{}=1,", i);
  expect_stopped("{% set n = namespace() %}" + attributes + "{% for i in range(100000) %}{{ n.a9999 }}{% endfor %}");
  expect_stopped(repeat("{% for i in [1] %}" + variables, 90) + "{% for i in range(100000) %}{{ g }}{{ g }}{{ g }}" +
                 "{{ g }}{% endfor %}" + repeat("{% endfor %}", 90));
  expect_stopped("{% macro f(" + params + "z) %}{{ kwargs }}{% endmacro %}{% for i in range(100000) %}{% set x = f(" +
                 args + "z=1) %}{% endfor %}");
  expect_stopped("{% set f = '{b9999}' * 100000 %}{% for i in range(100000) %}{% set x = f.format(" + args +
                 "z=1) %}{% endfor %}");
}

TEST(JinjaBudget, integer_overflow_is_an_error) {
  expect_stopped("{{ 10 ** (10 ** 10) }}");
  expect_stopped("{{ 10 ** 10 ** 10 }}");
  expect_stopped("{{ (-9223372036854775807 - 1) // -1 }}");
  expect_stopped("{{ -(-9223372036854775807 - 1) }}");
  expect_stopped("{{ 9223372036854775807 + 1 }}");
  expect_stopped("{{ 1e300|int }}");
  expect_stopped("{{ 99999999999999999999 }}");
  EXPECT_EQ(run("{{ (-9223372036854775807 - 1) % -1 }}").text, "0");
  EXPECT_EQ(run("{{ 'abc'[::9223372036854775807] }}{{ [1, 2][::-9223372036854775807] }}").text, "a[2]");
}

TEST(JinjaBudget, deeply_nested_source_is_an_error) {
  const size_t n = 20'000;
  for (const std::string_view piece : {"(", "[", "{'a':", "not ", "- ", "1 if 0 else ", "a[", "f("}) {
    expect_stopped("{{ " + repeat(piece, n));
  }
  for (const std::string_view piece : {" + 1", "|upper", ".a", "[0]", "()", " and 1", " ** 1", " is none"}) {
    expect_stopped("{{ 1" + repeat(piece, n) + " }}");
  }
  for (const std::string_view piece : {"{% if 1 %}", "{% for x in y %}", "{% set x %}", "{% macro f() %}"}) {
    expect_stopped(repeat(piece, n));
  }
  expect_stopped("{% set " + repeat("(", n) + "a");
}

TEST(JinjaBudget, oversized_template_is_an_error) {
  EXPECT_NE(run(std::string(kMaxTemplateBytes + 1, 'x')).message, "");
  EXPECT_EQ(run(std::string(kMaxTemplateBytes, 'x')).message, "");
}

TEST(JinjaBudget, deep_input_is_an_error) {
  json::value deep = 1;
  for (int i = 0; i < 1000; ++i) deep = json::array{std::move(deep)};
  EXPECT_NE(run("{{ x }}", deep).message.find("nested too deeply"), std::string::npos);
}

TEST(JinjaBudget, limits_grow_with_the_input) {
  const json::value x = json::value_from(std::string(8'000'000, 'x'));
  EXPECT_EQ(run("{% set y = x|trim ~ '.' %}{{ y|upper }}", x).text.size(), 8'000'001u);
}

TEST(JinjaBudget, quadratic_loop_over_a_thousand_messages_is_allowed) {
  json::array messages;
  for (int i = 0; i < 1000; ++i) messages.push_back(json::object{{"role", "user"}, {"content", "hi"}});
  const Outcome outcome =
      run("{% for m in x %}{% set n = namespace(c=0) %}{% for o in x[:loop.index] %}{% if o.role == 'user' %}"
          "{% set n.c = n.c + 1 %}{% endif %}{% endfor %}{{ n.c }} {% endfor %}",
          messages);
  EXPECT_EQ(outcome.message, "");
  EXPECT_TRUE(outcome.text.ends_with(" 1000 "));
}

TEST(JinjaErrors, give_line_and_column) {
  EXPECT_EQ(run("a\n  {{ 1 +  }}").message, "template:2:11: unexpected 'end of print statement'");
  EXPECT_EQ(run("{{ 'é' }}{{ y.z }}").message, "template:1:14: 'y' is undefined");
  EXPECT_EQ(run("{% if 1 %}\n{% if 2 %}\n{% endif %}").message.substr(0, 15), "template:3:12: ");
  EXPECT_EQ(run("\r\n\r\n{{ raise_exception('no') }}").message, "template:3:19: no");
  EXPECT_EQ(run("{% macro f() %}\n{{ 1 / 0 }}{% endmacro %}{{ f() }}").message, "template:2:6: division by zero");
}

}  // namespace
}  // namespace zinc::jinja
