#include "cli/reference_pages.h"

#include <fmt/core.h>

#include <vector>

#include "cli/help_format.h"
#include "cli/version.h"

namespace zinc {
namespace {

// CLI11 keeps a group of options as a command without a name.
std::vector<const CLI::App*> commands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App* command) { return !command->get_name().empty(); });
}

std::vector<const CLI::Option*> options_of(const CLI::App& app) {
  std::vector<const CLI::Option*> options = app.get_options();
  for (const CLI::App* group : app.get_subcommands([](const CLI::App* each) { return each->get_name().empty(); })) {
    const std::vector<const CLI::Option*> more = group->get_options();
    options.insert(options.end(), more.begin(), more.end());
  }
  return options;
}

// `app` and everything below it, with the words that lead there: "", "run", "debug eval".
void visit(const CLI::App& app, const std::string& path,
           const std::function<void(const CLI::App&, const std::string& path)>& take) {
  take(app, path);
  for (const CLI::App* command : commands_of(app)) {
    visit(*command, path + (path.empty() ? "" : " ") + command->get_name(), take);
  }
}

std::vector<std::string> spellings(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  return names;
}

std::string joined(const std::vector<std::string>& words, const char* between) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : between) + word;
  return text;
}

std::string replace_all(std::string text, std::string_view from, std::string_view to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

std::string roff(const std::string& text) {
  std::string out = replace_all(replace_all(text, "\\", "\\e"), "-", "\\-");
  if (out.starts_with('.') || out.starts_with('\'')) out = "\\&" + out;
  return replace_all(out, "\n", "\n.br\n");
}

std::string man_options(const CLI::App& app) {
  std::string text;
  for (const CLI::Option* option : options_of(app)) {
    const std::string names = joined(spellings(*option), ", ");
    const std::string value = value_text(*option);
    text += fmt::format(".TP\n\\fB{}\\fR \\fI{}\\fR\n{}", roff(names.empty() ? "" : names),
                        roff(names.empty() && value == "TEXT" ? option->get_name() : value),
                        roff(option->get_description()));
    if (!option->get_default_str().empty()) text += fmt::format(" (default: {})", roff(option->get_default_str()));
    text += "\n";
  }
  return text;
}

constexpr const char* kManEnd = R"(.SH EXIT STATUS
0: it worked. 1: it did not, and one line on standard error says why. 2: the command line was wrong.
130: Ctrl\-C ended it.
.SH ENVIRONMENT
.TP
\fBXDG_CACHE_HOME\fR, \fBXDG_CONFIG_HOME\fR, \fBXDG_STATE_HOME\fR
where models, the choice of the default model and the history of chats are kept
.TP
\fBHF_ENDPOINT\fR, \fBHF_TOKEN\fR, \fBHF_HOME\fR, \fBHF_HUB_CACHE\fR, \fBHF_HUB_OFFLINE\fR
as Hugging Face's own programs use them
.TP
\fBPIP_INDEX_URL\fR, \fBOLLAMA_MODELS\fR, \fBhttps_proxy\fR, \fBno_proxy\fR
as pip, Ollama and curl use them
.TP
\fBNO_COLOR\fR
no colours
.SH FILES
.TP
~/.cache/zinc
models that were fetched, and compiled kernels
.TP
~/.local/state/zinc/chat_history
questions of \fBzinc chat\fR
.SH EXAMPLES
.nf
zinc run 'Explain in two sentences why the sky is blue.'
zinc chat qwen3\-4b\-instruct\-2507
zinc run hf:Qwen/Qwen3\-0.6B\-GGUF 'Hello' \-\-json
zinc serve \-\-port 8080
zinc check
.fi
)";

// Words a shell may offer after the command at `path`.
std::vector<std::string> words_of(const CLI::App& app) {
  std::vector<std::string> words;
  for (const CLI::App* command : commands_of(app)) words.push_back(command->get_name());
  for (const CLI::Option* option : options_of(app)) {
    for (std::string& name : spellings(*option)) words.push_back(std::move(name));
  }
  return words;
}

std::string shell_word(const std::string& text) { return "'" + replace_all(text, "'", "'\\''") + "'"; }
std::string first_sentence(const std::string& text) { return text.substr(0, text.find('\n')); }

// "' run'|' chat'|' debug eval'": every path there is, as a shell's pattern.
std::string path_pattern(const CLI::App& root) {
  std::string pattern;
  visit(root, "", [&](const CLI::App&, const std::string& path) {
    if (!path.empty()) pattern += (pattern.empty() ? "" : "|") + shell_word(" " + path);
  });
  return pattern;
}

}  // namespace

std::string man_page(const CLI::App& root) {
  std::string text = fmt::format(".TH ZINC 1 \"\" \"{}\" \"User commands\"\n", roff(version_text()));
  text +=
      ".SH NAME\nzinc \\- runs language models on this machine\n.SH SYNOPSIS\n.B zinc\n.I COMMAND\n[\\fIOPTIONS\\fR]\n";
  text +=
      ".SH DESCRIPTION\nzinc reads models in the GGUF format and answers prompts with them: once (\\fBrun\\fR), in a\n"
      "conversation (\\fBchat\\fR) or over HTTP (\\fBserve\\fR). Where no model is named, the default one is used, "
      "and\n"
      "fetched when it is first needed.\n.SH COMMANDS\n";
  visit(root, "", [&](const CLI::App& app, const std::string& path) {
    if (path.empty() || path.starts_with("debug")) return;
    text += fmt::format(".SS zinc {}\n{}\n{}", roff(path), roff(app.get_description()), man_options(app));
  });
  return text + kManEnd;
}

std::string bash_completion(const CLI::App& root) {
  std::string cases;
  visit(root, "", [&](const CLI::App& app, const std::string& path) {
    cases += fmt::format("    {}) words={} ;;\n", shell_word(path.empty() ? "" : " " + path),
                         shell_word(joined(words_of(app), " ")));
  });
  return fmt::format(R"sh(# bash completion of zinc; written by `zinc completion bash`
_zinc() {{
  local cur=${{COMP_WORDS[COMP_CWORD]}} path= word words=
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    case "$path $word" in {}) path="$path $word" ;; esac
  done
  case $path in
{}  esac
  if [[ -n $path && $cur != -* ]]; then words="$words $("${{COMP_WORDS[0]}}" list --names 2>/dev/null)"; fi
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
  if [[ -n $path ]]; then COMPREPLY+=($(compgen -f -- "$cur")); fi
}}
complete -o filenames -F _zinc zinc
)sh",
                     path_pattern(root), cases);
}

std::string zsh_completion(const CLI::App& root) {
  std::string cases;
  visit(root, "", [&](const CLI::App& app, const std::string& path) {
    cases += fmt::format("    {}) entries=(\n", shell_word(path.empty() ? "" : " " + path));
    const auto add = [&](const std::string& name, const std::string& help) {
      cases += fmt::format("      {}\n", shell_word(replace_all(name, ":", "\\:") + ":" + first_sentence(help)));
    };
    for (const CLI::App* command : commands_of(app)) add(command->get_name(), command->get_description());
    for (const CLI::Option* option : options_of(app)) {
      for (const std::string& name : spellings(*option)) add(name, option->get_description());
    }
    cases += "    ) ;;\n";
  });
  return fmt::format(R"sh(#compdef zinc
# zsh completion of zinc; written by `zinc completion zsh`
_zinc() {{
  local chain= word
  local -a entries models
  for word in ${{words[2,CURRENT-1]}}; do
    case "$chain $word" in {}) chain="$chain $word" ;; esac
  done
  case $chain in
{}  esac
  _describe -o zinc entries
  if [[ -n $chain && $PREFIX != -* ]]; then
    models=(${{(f)"$(${{words[1]}} list --names 2>/dev/null)"}})
    compadd -a models
    _files
  fi
}}
if [[ $funcstack[1] == _zinc ]]; then _zinc "$@"; else compdef _zinc zinc; fi
)sh",
                     path_pattern(root), cases);
}

std::string fish_completion(const CLI::App& root) {
  std::string text = "# fish completion of zinc; written by `zinc completion fish`\n";
  visit(root, "", [&](const CLI::App& app, const std::string& path) {
    std::string when = "__fish_use_subcommand";
    if (!path.empty())
      when = "__fish_seen_subcommand_from " + replace_all(path, " ", "; and __fish_seen_subcommand_from ");
    const std::string start = fmt::format("complete -c zinc -n {}", shell_word(when));
    for (const CLI::App* command : commands_of(app)) {
      text += fmt::format("{} -f -a {} -d {}\n", start, command->get_name(), shell_word(command->get_description()));
    }
    for (const CLI::Option* option : options_of(app)) {
      std::string names;
      for (const std::string& name : option->get_snames()) names += " -s " + name;
      for (const std::string& name : option->get_lnames()) names += " -l " + name;
      if (!names.empty()) {
        text += fmt::format("{}{} -d {}\n", start, names, shell_word(first_sentence(option->get_description())));
      }
    }
  });
  return text + "complete -c zinc -n 'not __fish_use_subcommand' -a '(zinc list --names 2>/dev/null)' -d model\n";
}

}  // namespace zinc
