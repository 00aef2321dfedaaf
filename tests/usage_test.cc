// The command line as a black box: help, words of other programs, and wrong usage, which ends with exit code 2, one
// line on standard error and empty standard output.
#include "tests/support/contains_all.h"
#include "tests/support/program_fixture.h"

namespace zinc {
namespace {

using UsageTest = ProgramFixture;

TEST_F(UsageTest, version_and_help_print_to_standard_output) {
  const ProcessResult version = zinc({"--version"});
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_EQ(version.out.rfind("zinc ", 0), 0u) << version.out;
  EXPECT_EQ(zinc({"version"}).out, version.out);
  EXPECT_EQ(zinc({"-v"}).out, version.out);
  EXPECT_EQ(zinc({"help", "run"}).out, zinc({"run", "--help"}).out);
  EXPECT_EQ(zinc({"help"}).out, zinc({"--help"}).out);
  EXPECT_TRUE(contains_all(zinc({}).out, {"zinc run '", "zinc chat ", "zinc serve", "`zinc help`"}));
  for (const Arguments& arguments : std::vector<Arguments>{{"--help"},
                                                           {"run", "--help"},
                                                           {"serve", "--help"},
                                                           {"inspect", "--help"},
                                                           {"graph", "--help"},
                                                           {"bench", "--help"},
                                                           {"perplexity", "--help"},
                                                           {"imatrix", "--help"},
                                                           {"convert", "--help"},
                                                           {"quantize", "--help"},
                                                           {"pull", "--help"},
                                                           {"list", "--help"},
                                                           {"show", "--help"},
                                                           {"use", "--help"},
                                                           {"rm", "--help"},
                                                           {"debug", "eval", "--help"},
                                                           {"help"},
                                                           {"help", "run"},
                                                           {"help", "debug", "eval"},
                                                           {}}) {
    const ProcessResult help = zinc(arguments);
    EXPECT_EQ(help.exit_code, 0) << text_of(arguments);
    EXPECT_GT(help.out.size(), 40u) << text_of(arguments);
    EXPECT_EQ(help.err, "") << text_of(arguments);
  }
}

TEST_F(UsageTest, wrong_usage_exits_with_two_and_an_error_line) {
  const std::string model = file("model.gguf", "");
  const std::vector<Arguments> wrong = {{"no-such-command"},
                                        {"--no-such-option"},
                                        {"debug"},
                                        {"debug", "no-such-command"},
                                        {"inspect", model, "--no-such-option"},
                                        {"inspect", model, "unexpected argument"},
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
    const ProcessResult end = zinc(arguments);
    EXPECT_EQ(end.exit_code, 2) << text_of(arguments) << ": " << end.err;
    EXPECT_EQ(end.out, "") << text_of(arguments);
    EXPECT_NE(end.err, "") << text_of(arguments);
    EXPECT_EQ(end.err.find('\n'), end.err.size() - 1) << "one line: " << end.err;
    EXPECT_TRUE(contains_all(end.err, {"zinc: ", "--help"})) << text_of(arguments);
  }
}

TEST_F(UsageTest, usage_error_names_the_word_and_the_help_command) {
  EXPECT_TRUE(contains_all(zinc({"frob"}).err, {"'frob'", "`zinc --help`"}));
  EXPECT_TRUE(contains_all(zinc({"debug", "frob"}).err, {"'frob'", "`zinc debug --help`"}));
  EXPECT_TRUE(contains_all(zinc({"debug"}).err, {"missing", "`zinc debug --help`"}));
  EXPECT_TRUE(contains_all(zinc({"graph", kModel, "--json", "--dot"}).err, {"--json", "--dot", "`zinc graph --help`"}));
  EXPECT_TRUE(contains_all(zinc({"run", "hello", "--frob"}).err, {"--frob", "`zinc run --help`"}));
  for (const char* seed : {"-1", "18446744073709551616", "1.5", ""}) {
    const ProcessResult end = zinc({"run", kModel, "hello", "--seed", seed});
    EXPECT_EQ(end.exit_code, 2) << seed;
    EXPECT_TRUE(contains_all(end.err, {"--seed", "18446744073709551615"})) << seed;
  }
}

TEST_F(UsageTest, usage_error_suggests_a_correction) {
  EXPECT_TRUE(contains_all(zinc({"run", "why", "is", "the", "sky", "blue"}).err,
                           {"5 arguments", "quote the prompt", "'PROMPT'"}));
  EXPECT_TRUE(contains_all(zinc({"run", kModel, "hi", "--tempp", "1"}).err, {"unknown option '--tempp'", "`--temp`"}));
  EXPECT_TRUE(
      contains_all(zinc({"run", kModel, "hi", "-n", "abc"}).err, {"--max-tokens", "'abc' is not a whole number"}));
  EXPECT_TRUE(contains_all(zinc({"run", kModel, "hi", "-n", "-3"}).err, {"'-3' is not a whole number from 0"}));
  EXPECT_TRUE(contains_all(zinc({"model", "list"}).err, {"unknown command 'model'", "`zinc list`", "`zinc --help`"}));
  EXPECT_TRUE(contains_all(zinc({"models"}).err, {"unknown command 'models'", "`zinc list`"}));
  EXPECT_TRUE(contains_all(zinc({"help", "frob"}).err, {"no command 'zinc frob'", "`zinc help`"}));
  EXPECT_TRUE(contains_all(zinc({"help", "rnu"}).err, {"no command 'zinc rnu'; did you mean `run`? `zinc help`"}));
  EXPECT_TRUE(contains_all(zinc({"rn"}).err, {"unknown command 'rn'; did you mean `run`?"}));
  EXPECT_TRUE(contains_all(zinc({"run", "smolm2", "hi"}).err, {"unknown model 'smolm2'; did you mean 'smollm2'?"}));
  for (const char* option : {"-temp", "-temp=0.5"}) {
    EXPECT_TRUE(
        contains_all(zinc({"run", kModel, "hi", option, "0.5"}).err,
                     {fmt::format("unknown option '{}'; did you mean `--temp`?", option), "`zinc run --help`"}));
  }
}

TEST_F(UsageTest, model_or_prompt_without_a_command_is_told_of_run) {
  EXPECT_TRUE(contains_all(zinc({"absent.gguf"}).err, {"unknown command 'absent.gguf'; use `zinc run absent.gguf`"}));
  EXPECT_TRUE(contains_all(zinc({"smollm2-135m"}).err, {"use `zinc run smollm2-135m`"}));
  EXPECT_TRUE(contains_all(zinc({"Why is the sky blue?"}).err, {"use `zinc run 'PROMPT'`"}));
  EXPECT_TRUE(
      contains_all(zinc({"-m", kModel, "-p", "hi"}).err, {"unknown option '-m'; use `zinc run MODEL 'PROMPT'`"}));
}

TEST_F(UsageTest, usage_error_never_guesses_an_option_from_two_letters_or_a_command_that_deletes) {
  for (const Arguments& arguments :
       std::vector<Arguments>{{"px"}, {"rn"}, {"rmm"}, {"frm"}, {"run", kModel, "hi", "-k"}, {"check", "-x"}}) {
    const ProcessResult end = zinc(arguments);
    EXPECT_EQ(end.exit_code, 2) << text_of(arguments);
    EXPECT_EQ(end.err.find("did you mean `rm`"), std::string::npos) << end.err;
    EXPECT_EQ(end.err.find("did you mean `--"), std::string::npos) << end.err;
  }
}

TEST_F(UsageTest, words_of_ollama_and_llama_cpp_are_understood_or_answered) {
  EXPECT_EQ(zinc({"ls", "--names"}).out, zinc({"list", "--names"}).out);
  EXPECT_TRUE(contains_all(zinc({"create", "x"}).err, {"unknown command 'create'", "GGUF file by its path"}));
  EXPECT_TRUE(contains_all(zinc({"remove", "x"}).err, {"unknown command 'remove'", "`zinc rm NAME`"}));
  EXPECT_TRUE(
      contains_all(zinc({"run", kModel, "hi", "-ngl", "99"}).err, {"'-ngl'", "--device cpu", "zinc run --help"}));
  EXPECT_TRUE(contains_all(zinc({"run", kModel, "hi", "-hf", "a/b"}).err, {"'-hf'", "hf:ORG/REPO"}));
  EXPECT_TRUE(contains_all(zinc({"bench", "-m", kModel}).err, {"unknown option '-m'", "MODEL without -m"}));
  EXPECT_TRUE(contains_all(zinc({"serve", kModel, "-np", "4"}).err, {"'-np'", "`--parallel N`"}));
  const ProcessResult named =
      zinc({"run", "-m", kModel, "-p", "hello", "--ctx-size", "200", "--n-predict", "4", "--temp", "0"});
  EXPECT_EQ(named.exit_code, 0) << named.err;
  EXPECT_EQ(named.out, zinc({"run", kModel, "hello", "-n", "4", "--temp", "0"}).out);
  EXPECT_EQ(zinc({"run", "-m", kModel, "hello", "-n", "4", "--temp", "0"}).out, named.out);
}

TEST_F(UsageTest, parser_errors_are_in_plain_words) {
  EXPECT_TRUE(contains_all(zinc({"run", kModel, "hi", "--temp", "hot"}).err,
                           {"--temp: 'hot' is not a valid value; expected a number"}));
  EXPECT_TRUE(contains_all(zinc({"pull"}).err, {"missing argument NAME"}));
  EXPECT_TRUE(
      contains_all(zinc({"completion", "powershell"}).err, {"PAGE: 'powershell' is not one of bash, zsh, fish, man"}));
  EXPECT_TRUE(contains_all(zinc({"run", kModel, "hi", "-n"}).err, {"--max-tokens needs a value"}));
  EXPECT_TRUE(contains_all(zinc({"graph", kModel, "--json", "--dot"}).err, {"cannot be combined"}));
}

TEST_F(UsageTest, single_word_that_looks_like_an_unknown_model_is_not_a_question) {
  const std::string line = refusal({"run", "mistral"});
  EXPECT_TRUE(contains_all(line, {"unknown model 'mistral'", "zinc list", "zinc run -p mistral"}));
  EXPECT_TRUE(contains_all(refusal({"run", "qwen3.5"}), {"several models begin with 'qwen3.5'", "qwen3.5-4b"}));
  EXPECT_TRUE(contains_all(refusal({"run", "smolm2-135m-instruct"}), {"did you mean 'smollm2-135m-instruct'?"}));
}

TEST_F(UsageTest, help_shows_arguments_and_options_as_typed) {
  const auto help = [this](Arguments arguments) {
    arguments.push_back("--help");
    return zinc(arguments).out;
  };
  EXPECT_TRUE(contains_all(help({"run"}),
                           {"zinc run [OPTIONS] [MODEL] [PROMPT]\n", "\n  [MODEL] [PROMPT] ", "-n, --max-tokens N [0]",
                            "--grammar FILE", "--think ", "--no-think ", "--think-budget N ", "Examples:"}));
  EXPECT_TRUE(contains_all(help({"bench"}), {"zinc bench [OPTIONS] [MODEL...] [COMMAND]\n", "--n-prompt N [512]"}));
  EXPECT_TRUE(contains_all(help({"perplexity"}), {"zinc perplexity [OPTIONS] MODEL FILE\n"}));
  EXPECT_TRUE(contains_all(help({"graph"}), {"zinc graph [OPTIONS] [MODEL]\n", "Output format:\n  --json "}));
  EXPECT_TRUE(contains_all(help({"bench", "serve"}), {"zinc bench serve [OPTIONS] URL|MODEL...\n"}));
  for (const char* command : {"run", "chat", "serve", "bench", "graph", "list"}) {
    const std::string text = help({command});
    for (const char* internal : {"(0x)", "[[", "{false}", "Option Group", "Excludes"}) {
      EXPECT_EQ(text.find(internal), std::string::npos) << command << ": " << internal;
    }
  }
}

TEST_F(UsageTest, command_without_a_model_uses_the_default) {
  for (const char* command : {"chat", "bench", "inspect", "graph"}) {  // serve starts without a model
    const ProcessResult end = run_to_the_end({.argv = {"sh", "-c", fmt::format("{} {}", ZINC_PROGRAM, command)},
                                              .environment = {{"HF_HUB_OFFLINE", "1"},
                                                              {"XDG_CACHE_HOME", folder_.path().string()},
                                                              {"XDG_CONFIG_HOME", folder_.path().string()}}});
    EXPECT_EQ(end.exit_code, 1) << command << ": " << end.err;
    EXPECT_TRUE(contains_all(end.err, {"smollm2", "not installed"})) << command;
  }
}

TEST_F(UsageTest, print_config_shows_settings_and_their_origin) {
  const ProcessResult run = shell("$ZINC run $MODEL --temp 0.5 -t 1 --print-config");
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_TRUE(contains_all(run.out, {"model = " + kModel + "  # command line\n", "temp = 0.5  # command line\n",
                                     "top-k = 40  # zinc's own\n", "dry-multiplier = 0  # zinc's own\n",
                                     "threads = 1  # command line\n", "max-tokens = 0  # default\n"}));
  const ProcessResult serve = shell("ZINC_API_KEY=hush $ZINC serve $MODEL --port 81 --print-config");
  EXPECT_TRUE(contains_all(
      serve.out, {"port = 81  # command line\n", "api-key = (hidden)  # environment, ZINC_API_KEY\n", "parallel = "}));
  EXPECT_EQ(serve.out.find("hush"), std::string::npos);
  EXPECT_TRUE(contains_all(serve.out, {"swap = true  # default, from host\n"}));
  EXPECT_TRUE(contains_all(shell("$ZINC serve $MODEL --host 0.0.0.0 --print-config").out, {"swap = false  # default"}));
  EXPECT_TRUE(contains_all(shell("$ZINC serve $MODEL --no-swap --print-config").out, {"swap = false  # command line"}));
  EXPECT_TRUE(contains_all(shell("$ZINC bench $MODEL --print-config").out, {"n-prompt = 512  # default\n", "file = "}));
}

TEST_F(UsageTest, stop_option_takes_exactly_one_word) {
  const ProcessResult before = zinc({"run", "--stop", "zzz", kModel, "hello", "-n", "4", "--temp", "0"});
  EXPECT_EQ(before.exit_code, 0) << before.err;
  EXPECT_EQ(before.out, zinc({"run", kModel, "hello", "-n", "4", "--temp", "0"}).out);
}

}  // namespace
}  // namespace zinc
