#include "server/load/request_mix.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <random>

namespace zinc {
namespace {

constexpr int kMaxWeight = 1000, kMaxWords = 1 << 20, kMaxTokens = 1 << 20;
constexpr size_t kMaxKinds = 1000;

// Outputs have the maximum length, so that runs are comparable: most local servers support `ignore_eos`.
constexpr std::string_view kStandardMix =
    R"({"name":"chat","weight":6,"shared_words":60,"prompt_words":40,"max_tokens":64,"body":{"ignore_eos":true}}
{"name":"document","weight":2,"prompt_words":1000,"max_tokens":48,"body":{"ignore_eos":true}}
{"name":"agent","weight":2,"shared_words":1500,"prompt_words":100,"max_tokens":32,"body":{"ignore_eos":true}}
)";

// Words that are one token in most vocabularies, so that word counts approximate token counts.
constexpr std::array<std::string_view, 32> kWords = {
    "time",  "water", "house", "light", "paper", "river", "stone", "music", "green", "small", "story",
    "world", "night", "place", "table", "train", "money", "field", "horse", "glass", "heart", "sound",
    "north", "round", "white", "young", "plant", "cloud", "bread", "ocean", "metal", "piece"};

std::string words(int n, uint32_t seed) {
  std::minstd_rand random(seed + 1);
  random.discard(1);  // the first value is close to the seed
  std::string out;
  for (int i = 0; i < n; ++i) {
    if (i > 0) out += ' ';
    out += kWords[random() / 64 % kWords.size()];
  }
  return out;
}

Result<int> int_field(const json::object& line, std::string_view key, int default_value, int min, int max) {
  const json::value* const value = line.if_contains(key);
  if (!value) return default_value;
  if (value->is_int64() && value->get_int64() >= min && value->get_int64() <= max) {
    return static_cast<int>(value->get_int64());
  }
  return fail(ErrorCode::invalid_input, "'{}' is {}; expected an integer from {} to {}", key, to_json(*value), min,
              max);
}

Result<RequestKind> kind_of(const json::object& line) {
  static constexpr std::array<std::string_view, 6> kKeys = {"name",         "weight",     "shared_words",
                                                            "prompt_words", "max_tokens", "body"};
  for (const auto& member : line) {
    const std::string_view key(member.key().data(), member.key().size());
    if (std::ranges::find(kKeys, key) != kKeys.end()) continue;
    return fail(ErrorCode::invalid_input, "unknown field '{}'; expected {}", key, fmt::join(kKeys, ", "));
  }
  RequestKind kind;
  if (const json::value* name = line.if_contains("name")) {
    if (!name->is_string()) return fail(ErrorCode::invalid_input, "'name' must be a string");
    kind.name = std::string(name->get_string());
  }
  if (const json::value* body = line.if_contains("body")) {
    if (!body->is_object()) return fail(ErrorCode::invalid_input, "'body' must be an object");
    kind.body = body->get_object();
  }
  ZINC_TRY(weight, int_field(line, "weight", 1, 1, kMaxWeight));
  ZINC_TRY(shared, int_field(line, "shared_words", 0, 0, kMaxWords));
  ZINC_TRY(prompt, int_field(line, "prompt_words", 1, 1, kMaxWords));
  ZINC_TRY(tokens, int_field(line, "max_tokens", kind.max_tokens, 1, kMaxTokens));
  kind.weight = weight;
  kind.shared_words = shared;
  kind.prompt_words = prompt;
  kind.max_tokens = tokens;
  return kind;
}

}  // namespace

Result<RequestMix> RequestMix::parse(std::string_view lines, std::string_view name) {
  std::vector<RequestKind> kinds;
  size_t line_number = 0;
  for (size_t begin = 0; begin < lines.size();) {
    const size_t end = std::min(lines.find('\n', begin), lines.size());
    const std::string_view line = lines.substr(begin, end - begin);
    begin = end + 1;
    ++line_number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const Result<json::value> parsed = parse_json(line);
    const auto line_error = [&](std::string_view why) {
      return fail(ErrorCode::invalid_input, "{}, line {}: {}", name, line_number, why);
    };
    if (!parsed.ok()) return line_error(parsed.error().message);
    if (!parsed.value().is_object()) return line_error("expected a JSON object");
    Result<RequestKind> kind = kind_of(parsed.value().get_object());
    if (!kind.ok()) return line_error(kind.error().message);
    kinds.push_back(std::move(kind.value()));
    if (kinds.size() > kMaxKinds) return line_error(fmt::format("more than {} request kinds", kMaxKinds));
  }
  if (kinds.empty())
    return fail(ErrorCode::invalid_input, "{}: the file has no requests; expected one JSON object per line", name);
  return RequestMix(std::move(kinds));
}

RequestMix RequestMix::standard() {
  Result<RequestMix> mix = parse(kStandardMix, "the standard mix");
  ZINC_CHECK(mix.ok());
  return std::move(mix.value());
}

// Smooth weighted round robin: the kind with the most credit comes next.
RequestMix::RequestMix(std::vector<RequestKind> kinds) : kinds_(std::move(kinds)) {
  int total = 0;
  for (const RequestKind& kind : kinds_) total += kind.weight;
  std::vector<int> credit(kinds_.size(), 0);
  for (int i = 0; i < total; ++i) {
    for (size_t k = 0; k < kinds_.size(); ++k) credit[k] += kinds_[k].weight;
    const size_t next = static_cast<size_t>(std::ranges::max_element(credit) - credit.begin());
    credit[next] -= total;
    order_.push_back(next);
  }
}

json::object RequestMix::body(size_t request) const {
  const RequestKind& kind = this->kind(request);
  const uint32_t kind_number = static_cast<uint32_t>(&kind - kinds_.data());
  json::array messages;
  if (kind.shared_words > 0) {
    messages.push_back({{"role", "system"}, {"content", words(kind.shared_words, kind_number)}});
  }
  constexpr uint32_t kFirstOwnSeed = 1 << 16;  // after those of the shared prompts
  messages.push_back(
      {{"role", "user"}, {"content", words(kind.prompt_words, kFirstOwnSeed + static_cast<uint32_t>(request))}});
  json::object out{{"max_tokens", kind.max_tokens},
                   {"temperature", 0},
                   {"stream", true},
                   {"stream_options", {{"include_usage", true}}}};
  out["messages"] = std::move(messages);
  for (const auto& member : kind.body) out[member.key()] = member.value();
  return out;
}

}  // namespace zinc
