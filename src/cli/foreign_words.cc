#include "cli/foreign_words.h"

#include <algorithm>
#include <array>

namespace zinc {
namespace {

struct ForeignWord {
  std::string_view word, answer;
};
constexpr std::string_view kGpuLayers =
    "zinc places all layers on the device that --device selects; leave the option out, or use --device cpu";
constexpr std::string_view kRepository = "name the repository as the model: hf:ORG/REPO";
constexpr std::string_view kAutomatic = "zinc chooses this itself; leave the option out";
constexpr std::string_view kChat = "use `zinc chat`";
constexpr std::string_view kModelWord = "give the model as an argument: MODEL without -m";
constexpr std::string_view kKvFormat = "use `--kv f16`, `--kv q8_0`, `--kv fp8` or `--kv q4_0`";

// Options of llama.cpp and Ollama that no zinc command accepts.
constexpr auto kOptions = std::to_array<ForeignWord>({
    {"-ngl", kGpuLayers},
    {"--n-gpu-layers", kGpuLayers},
    {"--gpu-layers", kGpuLayers},
    {"-hf", kRepository},
    {"-hfr", kRepository},
    {"--hf-repo", kRepository},
    {"-fa", kAutomatic},
    {"--flash-attn", kAutomatic},
    {"-ub", kAutomatic},
    {"--batch-size", kAutomatic},
    {"--ubatch-size", kAutomatic},
    {"--jinja", kAutomatic},
    {"--mlock", kAutomatic},
    {"--no-mmap", kAutomatic},
    {"-cnv", kChat},
    {"--conversation", kChat},
    {"--interactive", kChat},
    {"-sys", "use `--system TEXT`"},
    {"--system-prompt", "use `--system TEXT`"},
    {"-np", "use `--parallel N`"},
    {"-ctk", kKvFormat},
    {"-ctv", kKvFormat},
    {"--cache-type-k", kKvFormat},
    {"--cache-type-v", kKvFormat},
    {"--alias", "NAME=MODEL sets the served name"},
    {"--format", "use `--json-schema FILE`; --json prints a report as JSON"},
    {"--keepalive", "a served model stays loaded until another one needs the memory; `zinc stop` unloads it"},
    {"--hidethinking", "only a terminal shows the reasoning; --no-think turns it off"},
    {"--nowordwrap", "zinc wraps only on a terminal; `| cat` gives the lines as the model wrote them"},
    {"-m", kModelWord},
    {"--model", kModelWord},
    {"-s", "use `--seed N`"},
    {"--pure", "use --tensor '.=TYPE': one type for every matrix"},
    {"--output-tensor-type", "use --tensor '^output=TYPE'"},
    {"--token-embedding-type", "use --tensor '^token_embd=TYPE'"},
    {"--leave-output-tensor", "use --tensor '^output=copy'"},
    {"--tensor-type", "use --tensor 'REGEX=TYPE'"},
    {"--tensor-type-file", "use --tensor 'REGEX=TYPE' as often as needed"},
    {"--chunks", "use `--windows N`"},
    {"--in-file", "use `zinc imatrix --merge A B -o C`"},
    {"--save-frequency", "use `--save-every N`"},
    {"--output-frequency", "use `--save-every N`"},
    {"--output-format", "importance matrices are written as GGUF; leave the option out"},
    {"--no-ppl", "zinc imatrix computes no perplexity; leave the option out"},
});

// Commands of Ollama, llama.cpp, pip and others.
constexpr auto kCommandWords = std::to_array<ForeignWord>({
    {"ask", "use `zinc run`"},
    {"cp", "`zinc serve NAME=MODEL` serves a model under another name"},
    {"create", "zinc has no Modelfiles: run a GGUF file by its path, with --system and sampling options"},
    {"delete", "use `zinc rm NAME`"},
    {"download", "use `zinc pull NAME`"},
    {"generate", "use `zinc run`"},
    {"info", "use `zinc show NAME`"},
    {"install", "use `zinc pull NAME`"},
    {"load", "use `zinc serve NAME`"},
    {"model", "did you mean `zinc list`?"},
    {"models", "did you mean `zinc list`?"},
    {"push", "zinc does not upload models"},
    {"llama-quantize", "use `zinc quantize IN OUT TYPE`"},
    {"remove", "use `zinc rm NAME`"},
    {"search", "`zinc list` shows the models zinc knows by name"},
    {"server", "did you mean `zinc serve`?"},
    {"signin", "zinc needs no account"},
    {"start", "use `zinc serve`"},
    {"unload", "use `zinc stop NAME`"},
});

template <class Table>
std::string_view answer_in(const Table& words, std::string_view word) {
  const auto found = std::ranges::find(words, word, &ForeignWord::word);
  return found == words.end() ? std::string_view() : found->answer;
}

}  // namespace

std::string_view foreign_option(std::string_view command, std::string_view option) {
  const bool is_model_without_command = command == "zinc" && (option == "-m" || option == "--model");
  if (is_model_without_command || (option == "-p" && command != "run")) return "use `zinc run MODEL 'PROMPT'`";
  return answer_in(kOptions, option.substr(0, option.find('=')));
}

std::string_view foreign_command(std::string_view word) { return answer_in(kCommandWords, word); }

std::optional<std::string> find_misread_option(std::span<const std::string> arguments,
                                               std::span<const std::string> long_options) {
  constexpr std::array<std::string_view, 4> kTexts = {"-p", "--prompt", "--system", "--stop"};
  for (size_t i = 0; i < arguments.size() && arguments[i] != "--"; ++i) {
    const std::string& word = arguments[i];
    const bool is_text = i > 0 && std::ranges::find(kTexts, arguments[i - 1]) != kTexts.end();
    const bool is_misread = word.size() > 2 && word[0] == '-' && word[1] != '-';
    if (!is_misread || is_text) continue;
    const bool is_long = std::ranges::find(long_options, word.substr(1, word.find('=') - 1)) != long_options.end();
    if (is_long || !answer_in(kOptions, word).empty()) return word;
  }
  return std::nullopt;
}

}  // namespace zinc
