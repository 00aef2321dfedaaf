// Constrained decoding against a file of JSON schemas with example documents:
//   constraint_bench VOCABULARY.gguf CASES.jsonl > RESULTS.jsonl
// A case is {"schema": ..., "valid": [text...], "invalid": [text...]}. Per case it prints whether the schema is
// accepted, which documents are allowed token by token, and the microseconds of every token mask (a mask that is cached
// counts, as in serving). bench/constraints.py makes the cases, runs llguidance on them and compares.
#include <fmt/core.h>

#include <cstdio>
#include <ctime>
#include <fstream>
#include <string>

#include "base/json.h"
#include "constrain/constraint.h"
#include "constrain/json_schema.h"
#include "gguf/gguf_file.h"

namespace zinc {
namespace {

// CPU time of this thread: other work on the machine does not count.
double cpu_us() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

// Whether every token of the document, and then its end, is in the mask.
bool allows_document(Constraint& constraint, const Tokenizer& tokenizer, std::string_view text, json::array& mask_us) {
  std::vector<TokenId> ids;
  tokenizer.encode(text, {}, ids);
  ids.push_back(tokenizer.eog_tokens().front());
  Constraint::Cursor cursor;
  for (const TokenId id : ids) {
    const double start = cpu_us();
    const Result<const TokenSet*> allowed = constraint.allowed_tokens(cursor);
    mask_us.push_back(cpu_us() - start);
    if (!allowed.ok() || !allowed.value()->contains(id)) return false;
    if (!constraint.accept(cursor, id).ok()) return false;
  }
  return true;
}

json::object run_case(const json::object& item, const Tokenizer& tokenizer,
                      const std::shared_ptr<const TokenTrie>& trie) {
  const double start = cpu_us();
  Result<Grammar> grammar = json_schema_grammar(item.at("schema"));
  json::object out{{"accepted", grammar.ok()}};
  if (!grammar.ok()) {
    out["error"] = grammar.error().message;
    return out;
  }
  Constraint constraint(std::move(grammar.value()), tokenizer, trie);
  out["compile_us"] = cpu_us() - start;
  json::array mask_us;
  for (const char* kind : {"valid", "invalid"}) {
    json::array allowed;
    for (const json::value& text : item.at(kind).get_array()) {
      allowed.push_back(allows_document(constraint, tokenizer, std::string_view(text.get_string()), mask_us));
    }
    out[kind] = std::move(allowed);
  }
  out["mask_us"] = std::move(mask_us);
  return out;
}

int run(const char* vocabulary, const char* cases) {
  const Result<GgufFile> file = GgufFile::open(vocabulary);
  if (!file.ok()) return fmt::print(stderr, "{}\n", file.error().message), 1;
  const Result<Tokenizer> tokenizer = Tokenizer::load(file.value());
  if (!tokenizer.ok()) return fmt::print(stderr, "{}\n", tokenizer.error().message), 1;
  const auto trie = std::make_shared<const TokenTrie>(tokenizer.value());
  std::ifstream lines(cases);
  for (std::string line; std::getline(lines, line);) {
    const Result<json::value> item = parse_json(line);
    if (!item.ok()) return fmt::print(stderr, "{}\n", item.error().message), 1;
    fmt::print("{}\n", to_json(run_case(item.value().get_object(), tokenizer.value(), trie)));
  }
  return 0;
}

}  // namespace
}  // namespace zinc

int main(int argc, char** argv) {
  if (argc == 3) return zinc::run(argv[1], argv[2]);
  fmt::print(stderr, "usage: constraint_bench VOCABULARY.gguf CASES.jsonl\n");
  return 2;
}
