#include "server/ollama_fields.h"

#include <fmt/chrono.h>

#include <array>
#include <charconv>

#include "server/request_fields.h"

namespace zinc {
namespace {

constexpr double kMaxIdleSeconds = 1e9;  // longer times mean "never"

struct DurationUnit {
  std::string_view name;
  double seconds;
};
// Of `options`, besides sampling.
constexpr FieldDoc kOptionFields[] = {{"stop", "array", ""}, {"num_predict", "integer", ""}};

// Longer names first: "m" is a prefix of "ms".
constexpr DurationUnit kUnits[] = {{"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}, {"h", 3600}, {"m", 60}, {"s", 1}};

// "1h30m", "-1", "300"; nullopt: not a duration.
std::optional<double> parse_duration(std::string_view text) {
  const bool is_negative = text.starts_with('-');
  if (is_negative) text.remove_prefix(1);
  if (text.empty()) return std::nullopt;
  double total = 0;
  while (!text.empty()) {
    double number = 0;
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (code != std::errc() || end == text.data() || !(number >= 0)) return std::nullopt;
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    double unit = 1;
    for (const DurationUnit& candidate : kUnits) {
      if (!text.starts_with(candidate.name)) continue;
      unit = candidate.seconds;
      text.remove_prefix(candidate.name.size());
      break;
    }
    total += number * unit;
  }
  return is_negative ? -total : total;
}

}  // namespace

std::string read_ollama_model(const FieldReader& fields) {
  constexpr std::string_view kDefaultTag = ":latest", kStorePrefix = "ollama:";
  std::string name = fields.text("model").value_or("");
  if (name.empty()) name = fields.text("name").value_or("");
  if (name.ends_with(kDefaultTag) && !name.starts_with(kStorePrefix)) name.resize(name.size() - kDefaultTag.size());
  return name;
}

void read_ollama_options(const FieldReader& fields, const ServerLimits& limits, ChatRequest& out) {
  const json::object* options = fields.object("options");
  if (!options) return;
  const FieldReader inside(*options, fields.name_of("options."), fields.errors());
  inside.check_known({kSamplingFields, kOptionFields});
  read_sampling(inside, out);
  read_stop(inside, "stop", limits, out);
  const auto limit = inside.integer("num_predict", -2, std::numeric_limits<int32_t>::max());  // -2: fill the context
  if (limit && *limit == 0)
    inside.errors().add("options.num_predict", "'options.num_predict' is 0; expected 1 or more, or -1");
  if (limit && *limit > 0) out.options.max_tokens = static_cast<int>(*limit);
}

std::optional<KeepAliveTime> read_keep_alive(const FieldReader& fields) {
  const json::value* value = fields.value("keep_alive");
  if (!value) return std::nullopt;
  std::optional<double> seconds;
  if (value->is_string()) {
    seconds = parse_duration(text_of(value->get_string()));
    if (!seconds) {
      fields.errors().add("keep_alive",
                          "'keep_alive' is not a duration; expected seconds, or text such as \"5m\" or \"-1\"");
    }
  } else {
    seconds = fields.number("keep_alive");
  }
  if (!seconds) return std::nullopt;
  if (*seconds < 0 || *seconds > kMaxIdleSeconds) return KeepAliveTime{};
  return KeepAliveTime{.idle = std::chrono::milliseconds(static_cast<int64_t>(*seconds * 1e3))};
}

std::string ollama_time(std::chrono::system_clock::time_point time) {
  const auto whole = std::chrono::floor<std::chrono::seconds>(time);
  const auto rest = std::chrono::duration_cast<std::chrono::microseconds>(time - whole);
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:06}Z", fmt::gmtime(std::chrono::system_clock::to_time_t(whole)),
                     rest.count());
}

}  // namespace zinc
