// The program as a black box. On bad input: exit code 2 for wrong usage, 1 with one line on standard error for anything
// the outside world got wrong, standard output empty, no file left behind, and never a crash or a hang. `zinc run`:
// where the prompt comes from, what ends the answer, and what becomes of it when nobody reads or wants it any more.
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/subprocess.h"
#include "tests/support/says.h"
#include "tests/support/test_files.h"

namespace zinc {
namespace {

namespace fs = std::filesystem;
using Arguments = std::vector<std::string>;

const std::string kModel = ZINC_SOURCE_DIR "/tests/data/oracle/models/qwen2-f16.gguf";

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
          {"serve", file, "--port", "0"},
          {"debug", "eval", file, "--tokens", "1,2,3"}};
}

std::string text_of(const Arguments& arguments) {
  std::string text = "zinc";
  for (const std::string& argument : arguments) text += " " + argument;
  return text;
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

class ProgramTest : public testing::Test {
 protected:
  ProcessEnd zinc(const Arguments& arguments) const {
    Arguments argv = {ZINC_PROGRAM};
    argv.insert(argv.end(), arguments.begin(), arguments.end());
    return run_to_the_end({.argv = argv});
  }

  // A shell's command line, where $ZINC is the program and $MODEL a tiny model that never ends its answer by itself.
  ProcessEnd shell(const std::string& line) const {
    const ProcessEnd end =
        run_to_the_end({.argv = {"sh", "-c", line}, .environment = {{"ZINC", ZINC_PROGRAM}, {"MODEL", kModel}}});
    EXPECT_FALSE(end.timed_out) << line;
    return end;
  }

  // The end of `command` after a Ctrl-C that came when its model was loaded, which on a busy machine takes its time.
  // --foreground: else timeout signals the program and then its process group, and a second Ctrl-C ends it at once.
  ProcessEnd interrupt(const std::string& before, const std::string& command) const {
    ProcessEnd end;
    for (const double seconds : {1.5, 5.0, 20.0}) {
      end = shell(fmt::format("{}timeout --foreground --preserve-status -s INT {} {}", before, seconds, command));
      if (!end.out.empty()) break;
    }
    return end;
  }

  ProcessEnd run_to_the_end(Process process) const {
    process.folder = folder_.path();
    process.time_limit = std::chrono::seconds(60);
    const Result<ProcessEnd> end = run_process(process);
    EXPECT_TRUE(end.ok()) << end.error().message;
    return end.ok() ? end.value() : ProcessEnd{.exit_code = -1};
  }

  // What `zinc run $MODEL <words> --json` reports.
  json::object report(const std::string& words) const {
    const ProcessEnd end = shell("$ZINC run $MODEL --temp 0 " + words + " --json");
    EXPECT_EQ(end.exit_code, 0) << words << ": " << end.err;
    const Result<json::value> value = parse_json(end.out);
    EXPECT_TRUE(value.ok()) << end.out;
    return value.ok() ? value.value().as_object() : json::object{};
  }

  std::string file(std::string_view name, std::string_view bytes) const { return put(folder_ / name, bytes).string(); }

  // Runs it and expects exit code 1 with one line; returns the line.
  std::string refusal(const Arguments& arguments) const {
    const ProcessEnd end = zinc(arguments);
    EXPECT_EQ(end.exit_code, 1) << text_of(arguments);
    EXPECT_FALSE(end.timed_out) << text_of(arguments);
    EXPECT_EQ(end.out, "") << text_of(arguments);
    EXPECT_EQ(end.err.rfind("zinc: ", 0), 0u) << text_of(arguments) << ": " << end.err;
    EXPECT_EQ(end.err.find('\n'), end.err.size() - 1) << text_of(arguments) << ": " << end.err;
    return end.err;
  }

  void expect_refused_by_name(const std::string& path) const {
    for (const Arguments& arguments : commands_on(path)) {
      const std::string line = refusal(arguments);
      EXPECT_NE(line.find(path), std::string::npos) << text_of(arguments) << ": " << line;
    }
  }

  const TestFolder folder_;
};

TEST_F(ProgramTest, version_and_help_succeed_on_standard_output) {
  const ProcessEnd version = zinc({"--version"});
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_EQ(version.out.rfind("zinc ", 0), 0u) << version.out;
  for (const Arguments& arguments : std::vector<Arguments>{{"--help"},
                                                           {"run", "--help"},
                                                           {"serve", "--help"},
                                                           {"inspect", "--help"},
                                                           {"graph", "--help"},
                                                           {"bench", "--help"},
                                                           {"perplexity", "--help"},
                                                           {"pull", "--help"},
                                                           {"list", "--help"},
                                                           {"show", "--help"},
                                                           {"use", "--help"},
                                                           {"rm", "--help"},
                                                           {"debug", "eval", "--help"}}) {
    const ProcessEnd help = zinc(arguments);
    EXPECT_EQ(help.exit_code, 0) << text_of(arguments);
    EXPECT_GT(help.out.size(), 40u) << text_of(arguments);
    EXPECT_EQ(help.err, "") << text_of(arguments);
  }
}

TEST_F(ProgramTest, wrong_usage_exits_with_two_and_says_why_on_standard_error) {
  const std::string model = file("model.gguf", "");
  const std::vector<Arguments> wrong = {{},
                                        {"no-such-command"},
                                        {"--no-such-option"},
                                        {"debug"},
                                        {"debug", "no-such-command"},
                                        {"inspect", model, "--no-such-option"},
                                        {"inspect", model, "one file too many"},
                                        {"perplexity", model},
                                        {"run", model, "hello", "--temp", "hot"},
                                        {"run", model, "hello", "--top-k", "1.5"},
                                        {"run", model, "hello", "-n"},
                                        {"run", model, "hello", "--seed", "x"},
                                        {"run", model, "hello", "--temp", "5"},
                                        {"run", model, "hello", "--top-k", "-1"},
                                        {"run", model, "hello", "--device", "gpu"},
                                        {"run", model, ""},
                                        {"run", "why", "is", "the", "sky", "blue"},
                                        {"chat", model, "--min-p", "2"},
                                        {"debug", "eval"},
                                        {"debug", "eval", model, "--tokens"}};
  for (const Arguments& arguments : wrong) {
    const ProcessEnd end = zinc(arguments);
    EXPECT_EQ(end.exit_code, 2) << text_of(arguments) << ": " << end.err;
    EXPECT_EQ(end.out, "") << text_of(arguments);
    EXPECT_NE(end.err, "") << text_of(arguments);
    EXPECT_EQ(end.err.find('\n'), end.err.size() - 1) << "one line: " << end.err;
    EXPECT_TRUE(says(end.err, {"zinc: ", "--help"})) << text_of(arguments);
  }
}

TEST_F(ProgramTest, a_wrong_word_is_named_beside_the_help_that_lists_the_right_ones) {
  EXPECT_TRUE(says(zinc({"frob"}).err, {"'frob'", "`zinc --help`"}));
  EXPECT_TRUE(says(zinc({"debug", "frob"}).err, {"'frob'", "`zinc debug --help`"}));
  EXPECT_TRUE(says(zinc({"debug"}).err, {"missing", "`zinc debug --help`"}));
  EXPECT_TRUE(says(zinc({"graph", kModel, "--json", "--dot"}).err, {"--json", "--dot", "`zinc graph --help`"}));
  EXPECT_TRUE(says(zinc({"run", "hello", "--frob"}).err, {"--frob", "`zinc run --help`"}));
  for (const char* seed : {"-1", "18446744073709551616", "1.5", ""}) {
    const ProcessEnd end = zinc({"run", kModel, "hello", "--seed", seed});
    EXPECT_EQ(end.exit_code, 2) << seed;
    EXPECT_TRUE(says(end.err, {"--seed", "18446744073709551615"})) << seed;
  }
}

TEST_F(ProgramTest, a_mistake_is_told_with_what_was_probably_meant) {
  EXPECT_TRUE(says(zinc({"run", "why", "is", "the", "sky", "blue"}).err, {"5 words", "quotes", "'PROMPT'"}));
  EXPECT_TRUE(says(zinc({"run", kModel, "hi", "--tempp", "1"}).err, {"'--tempp' is no option", "`--temp`"}));
  EXPECT_TRUE(says(zinc({"run", kModel, "hi", "-n", "abc"}).err, {"--max-tokens", "'abc' is no whole number"}));
  EXPECT_TRUE(says(zinc({"run", kModel, "hi", "-n", "-3"}).err, {"'-3' is no whole number from 0"}));
  EXPECT_TRUE(says(zinc({"run", "-m", kModel, "-p", "hi"}).err, {"`zinc run MODEL 'PROMPT'`"}));
  EXPECT_TRUE(says(zinc({"model", "list"}).err, {"'model' is no command", "`zinc list`", "`zinc --help`"}));
  EXPECT_TRUE(says(zinc({"models"}).err, {"'models' is no command", "`zinc list`"}));
  EXPECT_TRUE(says(zinc({"help"}).err, {"`zinc --help`"}));
  EXPECT_TRUE(says(zinc({"version"}).err, {"`zinc --version`"}));
  EXPECT_TRUE(says(zinc({"-v"}).err, {"'-v' is no option", "`zinc --version`"}));
}

TEST_F(ProgramTest, help_names_arguments_and_options_as_they_are_typed) {
  const auto help = [this](Arguments arguments) {
    arguments.push_back("--help");
    return zinc(arguments).out;
  };
  EXPECT_TRUE(says(help({"run"}), {"zinc run [OPTIONS] [MODEL] [PROMPT]\n", "\n  [MODEL] [PROMPT] ",
                                   "-n,--max-tokens N [512]", "--think,--no-think "}));
  EXPECT_TRUE(says(help({"bench"}), {"zinc bench [OPTIONS] [MODEL...] [SUBCOMMAND]\n", "--n-prompt N [512]"}));
  EXPECT_TRUE(says(help({"perplexity"}), {"zinc perplexity [OPTIONS] MODEL FILE\n"}));
  EXPECT_TRUE(says(help({"graph"}), {"zinc graph [OPTIONS] [MODEL]\n", "What is printed:\n  --json "}));
  EXPECT_TRUE(says(help({"bench", "serve"}), {"zinc bench serve [OPTIONS] URL|MODEL...\n"}));
  for (const char* command : {"run", "chat", "serve", "bench", "graph", "list"}) {
    const std::string text = help({command});
    for (const char* internal : {"(0x)", "[[", "{false}", "Option Group", "Excludes"}) {
      EXPECT_EQ(text.find(internal), std::string::npos) << command << ": " << internal;
    }
  }
}

TEST_F(ProgramTest, a_command_without_a_model_takes_the_default_one) {
  for (const char* command : {"chat", "serve --port 0", "bench", "inspect", "graph"}) {
    const ProcessEnd end = run_to_the_end({.argv = {"sh", "-c", fmt::format("{} {}", ZINC_PROGRAM, command)},
                                           .environment = {{"HF_HUB_OFFLINE", "1"},
                                                           {"XDG_CACHE_HOME", folder_.path().string()},
                                                           {"XDG_CONFIG_HOME", folder_.path().string()}}});
    EXPECT_EQ(end.exit_code, 1) << command << ": " << end.err;
    EXPECT_TRUE(says(end.err, {"smollm2", "not on this machine"})) << command;
  }
}

TEST_F(ProgramTest, stop_takes_one_word_and_leaves_model_and_prompt_alone) {
  const ProcessEnd before = zinc({"run", "--stop", "zzz", kModel, "hello", "-n", "4", "--temp", "0"});
  EXPECT_EQ(before.exit_code, 0) << before.err;
  EXPECT_EQ(before.out, zinc({"run", kModel, "hello", "-n", "4", "--temp", "0"}).out);
}

TEST_F(ProgramTest, a_model_file_that_is_not_there_is_named) {
  expect_refused_by_name((folder_ / "not there.gguf").string());
  expect_refused_by_name((folder_ / "no folder" / "model.gguf").string());
}

TEST_F(ProgramTest, a_folder_as_model_is_refused_by_name) { expect_refused_by_name(folder_.path().string()); }

TEST_F(ProgramTest, a_file_that_is_no_gguf_is_refused_by_name) {
  expect_refused_by_name(file("empty.gguf", ""));
  expect_refused_by_name(file("short.gguf", "GG"));
  expect_refused_by_name(file("text.gguf", "# A text file that someone renamed.\n"));
  expect_refused_by_name(file("zeros.gguf", std::string(4096, '\0')));
}

TEST_F(ProgramTest, a_gguf_cut_short_anywhere_is_refused_by_name) {
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

TEST_F(ProgramTest, counts_that_no_file_could_hold_are_refused_at_once) {
  expect_refused_by_name(file("tensors.gguf", GgufBytes(UINT64_MAX, 0).str()));
  expect_refused_by_name(file("keys.gguf", GgufBytes(0, uint64_t{1} << 60).str()));
}

TEST_F(ProgramTest, an_unknown_architecture_is_named_beside_the_known_ones) {
  const std::string model =
      file("model.gguf", GgufBytes(0, 1).string_key("general.architecture", "no-such-arch").str());
  for (const Arguments& arguments : commands_on(model)) {
    if (arguments[0] == "inspect") continue;  // shows what is in the file, of whatever architecture
    const std::string line = refusal(arguments);
    for (const char* name : {"no-such-arch", "llama", "qwen3"}) {
      EXPECT_NE(line.find(name), std::string::npos) << text_of(arguments) << ": " << line;
    }
  }
}

TEST_F(ProgramTest, a_gguf_without_an_architecture_says_which_key_is_missing) {
  const std::string model = file("model.gguf", GgufBytes(0, 1).string_key("general.name", "nameless").str());
  EXPECT_NE(refusal({"run", model, "hello"}).find("general.architecture"), std::string::npos);
  EXPECT_NE(refusal({"graph", model, "--json"}).find("general.architecture"), std::string::npos);
}

TEST_F(ProgramTest, a_failed_evaluation_leaves_no_output_file) {
  const std::string model = file("model.gguf", GgufBytes(0, 0).str());
  for (const char* tokens : {"1,2,3", "1,x", "", ",", "-1", "99999999999999999999"}) {
    const ProcessEnd end = zinc({"debug", "eval", model, "--tokens", tokens, "--logits-out", "logits.f32"});
    EXPECT_TRUE(end.exit_code == 1 || end.exit_code == 2) << "--tokens '" << tokens << "': " << end.exit_code;
    EXPECT_EQ(end.out, "");
    EXPECT_NE(end.err, "");
    for (const auto& entry : fs::directory_iterator(folder_.path())) EXPECT_EQ(entry.path().string(), model);
  }
}

TEST_F(ProgramTest, an_evaluation_that_follows_ids_gives_the_choice_and_the_logits_before_each) {
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

TEST_F(ProgramTest, a_hostile_name_or_value_in_a_file_reaches_the_terminal_on_one_line) {
  const std::string model = file(
      "model.gguf", GgufBytes(0, 1).string_key("general.architecture", "two\nlines \x1b[2J and a \xff byte").str());
  const std::string line = refusal({"run", model, "hello"});
  EXPECT_EQ(line.find('\x1b'), std::string::npos) << "an escape sequence of the file was passed on";
}

TEST_F(ProgramTest, run_takes_the_prompt_as_an_argument_or_from_standard_input) {
  const json::object argument = report("hello -n 8");
  EXPECT_EQ(argument.at("generated_tokens").as_int64(), 8);
  EXPECT_EQ(argument.at("finish_reason").as_string(), "max_tokens");
  file("prompt.txt", "hello\n");  // the newline is not part of the question
  const json::object piped = report("-n 8 <prompt.txt");
  EXPECT_EQ(piped.at("tokens"), argument.at("tokens"));
  EXPECT_EQ(piped.at("prompt_tokens"), argument.at("prompt_tokens"));
}

TEST_F(ProgramTest, run_streams_the_text_it_reports) {
  const json::value text = report("hello -n 8").at("text");
  const ProcessEnd streamed = shell("$ZINC run $MODEL --temp 0 hello -n 8");
  EXPECT_EQ(streamed.exit_code, 0);
  EXPECT_EQ(streamed.out, std::string(text.as_string()) + "\n");
  EXPECT_TRUE(says(streamed.err, {"prompt ", "generated 8 tokens", "max_tokens", "temp 0 (greedy)"}));
}

TEST_F(ProgramTest, run_says_what_cut_the_answer_short_and_what_allows_more) {
  EXPECT_TRUE(says(shell("$ZINC run $MODEL --temp 0 hello -n 8").err, {"ended at the limit of 8 tokens", "-n"}));
  const json::object whole = report("hello -n 8");
  const int64_t n = whole.at("prompt_tokens").as_int64() + 4;
  const std::string cut = shell(fmt::format("$ZINC run $MODEL --temp 0 hello -c {}", n)).err;
  EXPECT_TRUE(says(cut, {fmt::format("context of {} positions is full", n), "-c"}));
  const std::string stopped = shell("$ZINC run $MODEL --temp 0 hello -n 0 -c 2000 | head -c 5").err;
  EXPECT_EQ(stopped.find("limit"), std::string::npos) << stopped;
}

TEST_F(ProgramTest, more_threads_than_cores_are_used_with_a_warning) {
  const ProcessEnd many = shell("$ZINC run $MODEL hello -n 1 -t 1000");
  EXPECT_EQ(many.exit_code, 0) << many.err;
  EXPECT_TRUE(says(many.err, {"zinc: -t 1000", "this machine's"}));
  EXPECT_EQ(shell("$ZINC run $MODEL hello -n 1 -t 1").err.find("cores"), std::string::npos);
}

TEST_F(ProgramTest, an_answer_can_be_made_again_from_what_is_reported_of_it) {
  const ProcessEnd first = shell("$ZINC run $MODEL hello -n 8 --json");
  const json::object drawn = parse_json(first.out).value().as_object();
  const json::object& how = drawn.at("sampling").as_object();
  EXPECT_EQ(how.at("seed"), drawn.at("seed"));
  EXPECT_GT(how.at("temperature").to_number<double>(), 0) << "no greedy answers unless they are asked for";
  const ProcessEnd second =
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

TEST_F(ProgramTest, run_ends_the_answer_before_a_stop_string) {
  const std::string whole(report("hello -n 8").at("text").as_string());
  const std::string stop = whole.substr(1, 2);
  const json::object cut = report(fmt::format("hello -n 8 --stop nowhere --stop '{}'", stop));
  EXPECT_EQ(cut.at("finish_reason").as_string(), "stop_string");
  EXPECT_EQ(cut.at("text").as_string(), whole.substr(0, whole.find(stop)));
}

TEST_F(ProgramTest, run_answers_in_the_form_that_a_file_asks_for) {
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
  const ProcessEnd end = shell("$ZINC run $MODEL hello --grammar " + wrong);
  EXPECT_EQ(end.exit_code, 1);
  EXPECT_TRUE(says(end.err, {"w.gbnf", "'oops'"}));
  EXPECT_EQ(shell("$ZINC run $MODEL hello --grammar a --json-schema b").exit_code, 2);
}

TEST_F(ProgramTest, a_context_too_small_for_the_prompt_is_refused_with_both_numbers) {
  const int64_t n = report("hello -n 1").at("prompt_tokens").as_int64();
  EXPECT_TRUE(says(refusal({"run", kModel, "hello", "-c", "5"}), {fmt::format("{} tokens", n), "5 positions", "-c"}));
  // One position for each prompt token leaves the answer its first one.
  EXPECT_EQ(report(fmt::format("hello -n 0 -c {}", n)).at("finish_reason").as_string(), "context_full");
}

TEST_F(ProgramTest, keys_and_values_that_a_backend_cannot_keep_are_refused_with_those_it_can) {
  for (const char* name : {"fp8", "fp8_e4m3"}) {
    EXPECT_TRUE(says(refusal({"run", kModel, "hello", "--backend", "cpu", "--kv", name}),
                     {"the cpu backend", "'fp8'", "f32, f16 and q8_0"}));
  }
  EXPECT_EQ(zinc({"run", kModel, "hello", "--kv", "fp7"}).exit_code, 2);
}

TEST_F(ProgramTest, an_empty_or_unreadable_prompt_is_refused) {
  EXPECT_TRUE(says(zinc({"run", kModel, ""}).err, {"prompt is empty"}));
  EXPECT_TRUE(says(refusal({"run", kModel, "--raw", ""}), {"prompt is empty"}));
  for (const char* input : {"</dev/null", "<.", "<&-", "</dev/zero"}) {
    const ProcessEnd end = shell(fmt::format("$ZINC run $MODEL {}", input));
    EXPECT_EQ(end.exit_code, 1) << input;
    EXPECT_TRUE(says(end.err, {"zinc: the prompt"})) << input;
  }
}

TEST_F(ProgramTest, a_prompt_longer_than_any_file_name_is_a_prompt) {
  const std::string prompt(70'000, 'a');
  EXPECT_TRUE(says(refusal({"run", kModel, prompt}), {"do not fit"}));
  // Alone it could be a model or a prompt; without a model, one would be fetched, which is forbidden.
  const ProcessEnd end = run_to_the_end({.argv = {ZINC_PROGRAM, "run", prompt},
                                         .environment = {{"HF_HUB_OFFLINE", "1"},
                                                         {"XDG_CACHE_HOME", folder_.path().string()},
                                                         {"XDG_CONFIG_HOME", folder_.path().string()}}});
  EXPECT_EQ(end.exit_code, 1);
  EXPECT_TRUE(says(end.err, {"smollm2", "not on this machine"}));
}

TEST_F(ProgramTest, bytes_that_are_no_text_are_taken_as_a_prompt) {
  const ProcessEnd end = shell("printf 'caf\\351 \\377\\376 \\000' | $ZINC run $MODEL -n 2");
  EXPECT_EQ(end.exit_code, 0) << end.err;
}

TEST_F(ProgramTest, output_that_cannot_be_written_is_a_failure) {
  for (const char* command : {"run $MODEL hello -n 4 >/dev/full", "run $MODEL hello -n 4 --json >/dev/full",
                              "run $MODEL hello -n 4 >&-", "inspect $MODEL --json >/dev/full"}) {
    const ProcessEnd end = shell(fmt::format("$ZINC {}", command));
    EXPECT_EQ(end.exit_code, 1) << command;
    EXPECT_TRUE(says(end.err, {"zinc: standard output could not be written"})) << command;
  }
  EXPECT_EQ(shell("$ZINC run $MODEL hello -n 4 2>/dev/full").exit_code, 0) << "only the figures are lost";
}

TEST_F(ProgramTest, an_answer_nobody_reads_any_more_ends) {
  const ProcessEnd end = shell("$ZINC run $MODEL hello -n 0 -c 100000 | head -c 5");
  EXPECT_EQ(end.out.size(), 5u);
}

TEST_F(ProgramTest, interrupting_the_answer_keeps_it_and_prints_the_figures) {
  const std::string command = "$ZINC run $MODEL hello -n 0 -c 100000 --temp 0";
  const ProcessEnd end = interrupt("", command);
  EXPECT_EQ(end.exit_code, 130);
  EXPECT_GT(end.out.size(), 5u);
  EXPECT_EQ(end.out.back(), '\n');
  EXPECT_TRUE(says(end.err, {"prompt ", "(cancelled)", "zinc: interrupted"}));
  const ProcessEnd reported = interrupt("", command + " --json");
  EXPECT_EQ(reported.exit_code, 130);
  EXPECT_TRUE(says(reported.out, {"\"finish_reason\":\"cancelled\""}));
}

TEST_F(ProgramTest, interrupting_the_prompt_prints_how_far_it_was_read) {
  const ProcessEnd end = interrupt("yes word | head -c 90000 | ", "$ZINC run $MODEL -n 0 -c 100000");
  EXPECT_EQ(end.exit_code, 130);
  EXPECT_EQ(end.out, "\n");
  EXPECT_TRUE(says(end.err, {"generated 0 tokens", "(cancelled)", "zinc: interrupted"}));
}

}  // namespace
}  // namespace zinc
