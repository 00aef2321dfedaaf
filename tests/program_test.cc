// The program as a black box. Bad input: exit code 1 with one line on standard error, empty standard output, no files
// left behind, no crash and no hang. `zinc run`: prompt sources, stop conditions, closed pipes and interrupts. Wrong
// usage: usage_test.cc.
#include <cstdint>
#include <cstring>
#include <filesystem>

#include "tests/support/contains_all.h"
#include "tests/support/program_fixture.h"

namespace zinc {
namespace {

namespace fs = std::filesystem;

// Every command that opens a model, applied to `file`.
std::vector<Arguments> commands_on(const std::string& file) {
  return {{"inspect", file},
          {"inspect", file, "--json"},
          {"graph", file, "--json"},
          {"graph", file, "--dot"},
          {"graph", file, "--cost"},
          {"run", file, "hello"},
          {"bench", file, "-p", "4", "-n", "2", "-r", "1"},
          {"perplexity", file, kModel},
          {"imatrix", file, kModel},
          {"serve", file, "--port", "0"},
          {"debug", "eval", file, "--tokens", "1,2,3"}};
}

// Bytes of a GGUF header, written field by field. GGUF is little-endian, as is every machine the tests run on.
class GgufBytes {
 public:
  GgufBytes(uint64_t n_tensors, uint64_t n_keys) : bytes_("GGUF") {
    append(uint32_t{3});
    append(n_tensors);
    append(n_keys);
  }
  GgufBytes& string_key(std::string_view key, std::string_view value) {
    constexpr uint32_t kStringType = 8;
    append_string(key);
    append(kStringType);
    append_string(value);
    return *this;
  }
  const std::string& str() const { return bytes_; }

 private:
  template <class T>
  void append(T number) {
    bytes_.append(reinterpret_cast<const char*>(&number), sizeof number);
  }
  void append_string(std::string_view text) {
    append(uint64_t{text.size()});
    bytes_ += text;
  }
  std::string bytes_;
};

class ProgramTest : public ProgramFixture {
 protected:
  void expect_refused_by_name(const std::string& path) const {
    for (const Arguments& arguments : commands_on(path)) {
      const std::string line = refusal(arguments);
      EXPECT_NE(line.find(path), std::string::npos) << text_of(arguments) << ": " << line;
    }
  }
};

TEST_F(ProgramTest, missing_model_file_is_named) {
  expect_refused_by_name((folder_ / "not there.gguf").string());
  expect_refused_by_name((folder_ / "no folder" / "model.gguf").string());
}

TEST_F(ProgramTest, folder_as_model_is_rejected_by_name) { expect_refused_by_name(folder_.path().string()); }

TEST_F(ProgramTest, invalid_gguf_is_rejected_by_name) {
  expect_refused_by_name(file("empty.gguf", ""));
  expect_refused_by_name(file("short.gguf", "GG"));
  expect_refused_by_name(file("text.gguf", "# A text file that someone renamed.\n"));
  expect_refused_by_name(file("zeros.gguf", std::string(4096, '\0')));
}

TEST_F(ProgramTest, truncated_gguf_is_rejected_by_name) {
  const std::string whole = GgufBytes(1, 2)
                                .string_key("general.architecture", "llama")
                                .string_key("general.name", "a name that is cut")
                                .str();
  // One cut inside each kind of field: version, counts, key length, key, type, value length, value, tensor list.
  for (const size_t n_bytes : {size_t{6}, size_t{12}, size_t{20}, size_t{28}, size_t{40}, size_t{54}, size_t{60},
                               size_t{66}, whole.size() - 3, whole.size()}) {
    expect_refused_by_name(file(fmt::format("cut at {}.gguf", n_bytes), whole.substr(0, n_bytes)));
  }
}

TEST_F(ProgramTest, impossible_counts_are_rejected_at_once) {
  expect_refused_by_name(file("tensors.gguf", GgufBytes(UINT64_MAX, 0).str()));
  expect_refused_by_name(file("keys.gguf", GgufBytes(0, uint64_t{1} << 60).str()));
}

TEST_F(ProgramTest, unknown_architecture_error_lists_the_known_ones) {
  const std::string model =
      file("model.gguf", GgufBytes(0, 1).string_key("general.architecture", "no-such-arch").str());
  for (const Arguments& arguments : commands_on(model)) {
    if (arguments[0] == "inspect") continue;  // works for any architecture
    const std::string line = refusal(arguments);
    for (const char* name : {"no-such-arch", "llama", "qwen3"}) {
      EXPECT_NE(line.find(name), std::string::npos) << text_of(arguments) << ": " << line;
    }
  }
}

TEST_F(ProgramTest, missing_architecture_key_is_named) {
  const std::string model = file("model.gguf", GgufBytes(0, 1).string_key("general.name", "nameless").str());
  EXPECT_NE(refusal({"run", model, "hello"}).find("general.architecture"), std::string::npos);
  EXPECT_NE(refusal({"graph", model, "--json"}).find("general.architecture"), std::string::npos);
}

TEST_F(ProgramTest, failed_evaluation_leaves_no_output_file) {
  const std::string model = file("model.gguf", GgufBytes(0, 0).str());
  for (const char* tokens : {"1,2,3", "1,x", "", ",", "-1", "99999999999999999999"}) {
    const ProcessResult end = zinc({"debug", "eval", model, "--tokens", tokens, "--logits-out", "logits.f32"});
    EXPECT_TRUE(end.exit_code == 1 || end.exit_code == 2) << "--tokens '" << tokens << "': " << end.exit_code;
    EXPECT_EQ(end.out, "");
    EXPECT_NE(end.err, "");
    for (const auto& entry : fs::directory_iterator(folder_.path())) EXPECT_EQ(entry.path().string(), model);
  }
}

TEST_F(ProgramTest, evaluation_with_follow_returns_choice_and_logits_per_id) {
  const auto evaluate = [this](const std::string& decode) {
    return parse_json(shell("$ZINC debug eval $MODEL --tokens 1,2,3 --logits-out logits.f32 " + decode).out)
        .value()
        .as_object();
  };
  const json::array free = evaluate("--greedy 3").at("greedy").as_array();
  const auto row = fs::file_size(folder_ / "logits.f32");
  const int64_t first = free.at(0).as_int64(), other = free.at(1).as_int64() == 5 ? 6 : 5;
  const json::array led =
      evaluate("--follow " + std::to_string(first) + "," + std::to_string(other) + ",7").at("greedy").as_array();
  EXPECT_EQ(fs::file_size(folder_ / "logits.f32"), 3 * row);
  EXPECT_EQ(led.at(0), free.at(0));
  EXPECT_EQ(led.at(1), free.at(1));
  const std::string behind = "1,2,3," + std::to_string(first) + "," + std::to_string(other);
  EXPECT_EQ(led.at(2), parse_json(shell("$ZINC debug eval $MODEL --tokens " + behind).out).value().at("top"));
  EXPECT_NE(zinc({"debug", "eval", kModel, "--tokens", "1", "--follow", "999999"}).err.find("--follow"),
            std::string::npos);
}

TEST_F(ProgramTest, hostile_metadata_is_sanitized_to_one_line) {
  const std::string model = file(
      "model.gguf", GgufBytes(0, 1).string_key("general.architecture", "two\nlines \x1b[2J and a \xff byte").str());
  const std::string line = refusal({"run", model, "hello"});
  EXPECT_EQ(line.find('\x1b'), std::string::npos) << "an escape sequence of the file reached the terminal";
}

TEST_F(ProgramTest, run_reads_the_prompt_from_argument_or_standard_input) {
  const json::object argument = report("hello -n 8");
  EXPECT_EQ(argument.at("generated_tokens").as_int64(), 8);
  EXPECT_EQ(argument.at("finish_reason").as_string(), "max_tokens");
  file("prompt.txt", "hello\n");  // the newline is not part of the prompt
  const json::object piped = report("-n 8 <prompt.txt");
  EXPECT_EQ(piped.at("tokens"), argument.at("tokens"));
  EXPECT_EQ(piped.at("prompt_tokens"), argument.at("prompt_tokens"));
}

TEST_F(ProgramTest, run_joins_piped_text_and_the_question) {
  const int64_t question = report("hello -n 1").at("prompt_tokens").as_int64();
  file("text.txt", "The ship arrived in Hamburg.\n");
  const json::object joined = report("hello -n 4 <text.txt");
  EXPECT_GT(joined.at("prompt_tokens").as_int64(), question + 4);
  file("both.txt", "The ship arrived in Hamburg.\n\nhello\n");
  EXPECT_EQ(report("-n 4 <both.txt").at("tokens"), joined.at("tokens"));
  EXPECT_EQ(report("hello -n 4 -f text.txt </dev/zero").at("tokens"), joined.at("tokens"));
  EXPECT_EQ(report("hello -n 1 --no-stdin <text.txt").at("prompt_tokens").as_int64(), question);
  for (const char* nothing : {"</dev/null", "<&-"}) {
    EXPECT_EQ(report(fmt::format("hello -n 1 {}", nothing)).at("prompt_tokens").as_int64(), question) << nothing;
  }
}

TEST_F(ProgramTest, run_notes_binary_input) {
  const ProcessResult piped = shell("printf 'a\\000b' | $ZINC run $MODEL hello -n 1");
  EXPECT_EQ(piped.exit_code, 0) << piped.err;
  EXPECT_TRUE(contains_all(piped.err, {"zinc: standard input has zero bytes: it is probably not text\n"}));
  file("binary", std::string_view("a\0b", 3));
  EXPECT_TRUE(contains_all(shell("$ZINC run $MODEL hello -f binary -n 1").err, {"zinc: binary has zero bytes"}));
  file("text", "caf\xe9\n");
  EXPECT_EQ(shell("$ZINC run $MODEL hello -f text -n 1").err.find("zero bytes"), std::string::npos);
}

TEST_F(ProgramTest, run_says_that_it_waits_for_an_open_pipe) {
  const ProcessResult end =  // the pipe stays open until the program says so
      shell("{ until grep -qs waiting err; do sleep 0.1; done; } | $ZINC run $MODEL hello -n 1 2>err");
  EXPECT_EQ(end.exit_code, 0) << contents(folder_ / "err");
  EXPECT_TRUE(contains_all(contents(folder_ / "err"), {"waiting for standard input", "--no-stdin"}));
  EXPECT_EQ(shell("sleep 1 | $ZINC run $MODEL hello -n 1 --no-stdin").err.find("waiting"), std::string::npos);
}

TEST_F(ProgramTest, run_has_no_default_limit_but_the_context) {
  const std::string said = shell("$ZINC run $MODEL --temp 0 hello").err;
  EXPECT_NE(said.find("the context of 1024 tokens, the model's maximum, is full\n"), std::string::npos) << said;
}

TEST_F(ProgramTest, run_streams_the_text_it_reports) {
  const json::value text = report("hello -n 8").at("text");
  EXPECT_EQ(shell("$ZINC run $MODEL --temp 0 hello -n 8 --json").err, "");
  const ProcessResult streamed = shell("$ZINC run $MODEL --temp 0 hello -n 8 --verbose");
  EXPECT_EQ(streamed.exit_code, 0);
  EXPECT_EQ(streamed.out, std::string(text.as_string()) + "\n");
  EXPECT_TRUE(
      contains_all(streamed.err, {"prompt ", "generated 8 tokens", "max_tokens", "temp 0 (greedy)", "speculation: "}));
  const std::string plain = shell("$ZINC run $MODEL --temp 0 hello -n 8 --verbose --speculate off").err;
  EXPECT_TRUE(contains_all(plain, {"speculation: 0 of 0 drafted tokens accepted; steps: ", " with --speculate off"}))
      << plain;
}

TEST_F(ProgramTest, run_reports_a_cut_off_answer_and_the_option_to_raise_the_limit) {
  EXPECT_TRUE(
      contains_all(shell("$ZINC run $MODEL --temp 0 hello -n 8").err, {"cut off at the limit of 8 tokens", "-n"}));
  const json::object whole = report("hello -n 8");
  const int64_t n = whole.at("prompt_tokens").as_int64() + 4;
  const std::string cut = shell(fmt::format("$ZINC run $MODEL --temp 0 hello -c {}", n)).err;
  EXPECT_TRUE(contains_all(cut, {fmt::format("context of {} tokens is full", n), "-c"}));
  const std::string stopped = shell("$ZINC run $MODEL --temp 0 hello -n 0 -c 2000 | head -c 5").err;
  EXPECT_EQ(stopped.find("limit"), std::string::npos) << stopped;
}

TEST_F(ProgramTest, more_threads_than_cores_are_used_with_a_warning) {
  const ProcessResult many = shell("$ZINC run $MODEL hello -n 1 -t 1000");
  EXPECT_EQ(many.exit_code, 0) << many.err;
  EXPECT_TRUE(contains_all(many.err, {"zinc: -t 1000", "this machine's"}));
  EXPECT_EQ(shell("$ZINC run $MODEL hello -n 1 -t 1").err.find("cores"), std::string::npos);
}

TEST_F(ProgramTest, answer_is_reproducible_from_the_reported_seed) {
  const ProcessResult first = shell("$ZINC run $MODEL hello -n 8 --json");
  const json::object drawn = parse_json(first.out).value().as_object();
  const json::object& how = drawn.at("sampling").as_object();
  EXPECT_EQ(how.at("seed"), drawn.at("seed"));
  EXPECT_GT(how.at("temperature").to_number<double>(), 0) << "sampling is greedy only on request";
  const ProcessResult second =
      shell(fmt::format("$ZINC run $MODEL hello -n 8 --json --seed {}", drawn.at("seed").to_number<uint64_t>()));
  EXPECT_EQ(parse_json(second.out).value().at("tokens"), drawn.at("tokens"));
}

TEST_F(ProgramTest, run_wraps_the_prompt_in_the_chat_template_unless_it_is_raw) {
  const int64_t chat = report("hello -n 1").at("prompt_tokens").as_int64();
  const int64_t raw = report("hello -n 1 --raw").at("prompt_tokens").as_int64();
  const int64_t system = report("hello -n 1 --system 'Be brief.'").at("prompt_tokens").as_int64();
  EXPECT_LT(raw, 6);
  EXPECT_GT(chat, raw + 8) << "no roles around the prompt";
  EXPECT_GT(system, chat + 8) << "no system message";
}

TEST_F(ProgramTest, drafts_do_not_change_the_answer) {
  const json::value plain = report("hello -n 200 --speculate off").at("tokens");
  for (const char* drafter : {"auto", "ngram"}) {
    EXPECT_EQ(report(fmt::format("hello -n 200 --speculate {}", drafter)).at("tokens"), plain) << drafter;
  }
  EXPECT_TRUE(contains_all(refusal({"run", kModel, "hello", "--speculate", "mtp"}), {"has no MTP block"}));
  EXPECT_EQ(zinc({"run", kModel, "hello", "--speculate", "guess"}).exit_code, 2);
  EXPECT_EQ(zinc({"chat", kModel, "--speculate", "guess"}).exit_code, 2);
}

TEST_F(ProgramTest, run_ends_the_answer_before_a_stop_string) {
  const std::string whole(report("hello -n 8").at("text").as_string());
  const std::string stop = whole.substr(1, 2);
  const json::object cut = report(fmt::format("hello -n 8 --stop nowhere --stop '{}'", stop));
  EXPECT_EQ(cut.at("finish_reason").as_string(), "stop_string");
  EXPECT_EQ(cut.at("text").as_string(), whole.substr(0, whole.find(stop)));
}

TEST_F(ProgramTest, run_constrains_the_output_to_a_grammar_or_schema_file) {
  const std::string grammar = file("g.gbnf", "root ::= [0-9]{3} \"!\"\n");
  const json::object digits = report("hello --grammar " + grammar);
  const std::string text(digits.at("text").as_string());
  ASSERT_EQ(text.size(), 4u) << text;
  EXPECT_EQ(text.find_first_not_of("0123456789"), 3u) << text;
  EXPECT_EQ(digits.at("finish_reason"), "end_token");

  const std::string schema = file("s.json", R"({"enum": [{"a": 1}, [2]]})");
  const json::value made =
      parse_json(std::string(report("hello --json-schema " + schema).at("text").as_string())).value();
  EXPECT_TRUE(made.is_object() || made.is_array());

  const std::string wrong = file("w.gbnf", "root ::= oops");
  const ProcessResult end = shell("$ZINC run $MODEL hello --grammar " + wrong);
  EXPECT_EQ(end.exit_code, 1);
  EXPECT_TRUE(contains_all(end.err, {"w.gbnf", "'oops'"}));
  EXPECT_EQ(shell("$ZINC run $MODEL hello --grammar a --json-schema b").exit_code, 2);
}

TEST_F(ProgramTest, context_too_small_for_the_prompt_is_rejected_with_both_numbers) {
  const int64_t n = report("hello -n 1").at("prompt_tokens").as_int64();
  EXPECT_TRUE(contains_all(refusal({"run", kModel, "hello", "-c", "5"}),
                           {fmt::format("{} tokens", n), "context of 5 tokens", "-c"}));
  // One position for each prompt token leaves the answer its first one.
  EXPECT_EQ(report(fmt::format("hello -n 0 -c {}", n)).at("finish_reason").as_string(), "context_full");
}

TEST_F(ProgramTest, unsupported_kv_format_is_rejected_with_the_supported_ones) {
  for (const char* name : {"fp8", "fp8_e4m3"}) {
    EXPECT_TRUE(contains_all(refusal({"run", kModel, "hello", "--backend", "cpu", "--kv", name}),
                             {"the cpu backend", "'fp8'", "f32, f16, q8_0 or q4_0"}));
  }
  EXPECT_EQ(zinc({"run", kModel, "hello", "--kv", "fp7"}).exit_code, 2);
}

TEST_F(ProgramTest, empty_or_unreadable_prompt_is_rejected) {
  EXPECT_TRUE(contains_all(zinc({"run", kModel, ""}).err, {"prompt is empty"}));
  EXPECT_TRUE(contains_all(refusal({"run", kModel, "--raw", ""}), {"prompt is empty"}));
  for (const char* input : {"</dev/null", "<.", "<&-", "</dev/zero"}) {
    const ProcessResult end = shell(fmt::format("$ZINC run $MODEL {}", input));
    EXPECT_EQ(end.exit_code, 1) << input;
    EXPECT_TRUE(contains_all(end.err, {"zinc: the prompt"})) << input;
  }
}

TEST_F(ProgramTest, prompt_longer_than_any_file_name_is_a_prompt) {
  const std::string prompt(70'000, 'a');
  EXPECT_TRUE(contains_all(refusal({"run", kModel, prompt}), {"do not fit"}));
  // A single word may be a model or a prompt; the default model would be downloaded, but offline mode forbids it.
  const ProcessResult end = run_to_the_end({.argv = {ZINC_PROGRAM, "run", prompt},
                                            .environment = {{"HF_HUB_OFFLINE", "1"},
                                                            {"XDG_CACHE_HOME", folder_.path().string()},
                                                            {"XDG_CONFIG_HOME", folder_.path().string()}}});
  EXPECT_EQ(end.exit_code, 1);
  EXPECT_TRUE(contains_all(end.err, {"smollm2", "not installed"}));
}

TEST_F(ProgramTest, invalid_utf8_is_accepted_as_a_prompt) {
  const ProcessResult end = shell("printf 'caf\\351 \\377\\376 \\000' | $ZINC run $MODEL -n 2");
  EXPECT_EQ(end.exit_code, 0) << end.err;
}

TEST_F(ProgramTest, unwritable_output_is_a_failure) {
  for (const char* command : {"run $MODEL hello -n 4 >/dev/full", "run $MODEL hello -n 4 --json >/dev/full",
                              "run $MODEL hello -n 4 >&-", "inspect $MODEL --json >/dev/full"}) {
    const ProcessResult end = shell(fmt::format("$ZINC {}", command));
    EXPECT_EQ(end.exit_code, 1) << command;
    EXPECT_TRUE(contains_all(end.err, {"zinc: cannot write to standard output"})) << command;
  }
  EXPECT_EQ(shell("$ZINC run $MODEL hello -n 4 2>/dev/full").exit_code, 0) << "only the figures are lost";
}

// kModel in a file that says it was trained for a context of 100,000 tokens: an answer that takes long.
class LongAnswerTest : public ProgramFixture {
 protected:
  std::string run(const std::string& words) const {
    constexpr std::string_view kKey = "qwen2.context_length";
    constexpr uint32_t kContext = 100'000;
    std::string bytes = contents(kModel);
    std::memcpy(bytes.data() + bytes.find(kKey) + kKey.size() + sizeof(uint32_t), &kContext, sizeof kContext);
    return fmt::format("$ZINC run {} {} -n 0 -c {}", file("long.gguf", bytes), words, kContext);
  }
};

TEST_F(LongAnswerTest, ends_with_its_output_pipe) {
  const ProcessResult end = shell(run("hello") + " | head -c 5");
  EXPECT_EQ(end.out.size(), 5u);
}

TEST_F(LongAnswerTest, interrupted_during_decode_keeps_its_text_and_prints_the_figures) {
  const std::string command = run("hello") + " --temp 0 -v";
  const ProcessResult end = interrupt("", command, 6);
  EXPECT_EQ(end.exit_code, 130);
  EXPECT_GT(end.out.size(), 5u);
  EXPECT_EQ(end.out.back(), '\n');
  EXPECT_TRUE(contains_all(end.err, {"prompt ", "(cancelled)", "zinc: interrupted"}));
  const ProcessResult reported = interrupt("", command + " --json");
  EXPECT_EQ(reported.exit_code, 130);
  EXPECT_TRUE(contains_all(reported.out, {"\"finish_reason\":\"cancelled\""}));
}

TEST_F(LongAnswerTest, interrupted_during_prefill_prints_the_figures) {
  const ProcessResult end = interrupt("yes word | head -c 90000 | ", run("--verbose"));
  EXPECT_EQ(end.exit_code, 130);
  EXPECT_EQ(end.out, "\n");
  EXPECT_TRUE(contains_all(end.err, {"generated 0 tokens", "(cancelled)", "zinc: interrupted"}));
}

}  // namespace
}  // namespace zinc
