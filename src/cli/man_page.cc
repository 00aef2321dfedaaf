#include "cli/man_page.h"

#include <fmt/core.h>

#include <vector>

#include "backend/backend.h"
#include "base/version.h"
#include "cli/help_format.h"
#include "cli/shell_word.h"

namespace zinc {
namespace {

std::vector<const CLI::App*> commands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

// Visits `app` and all its subcommands with their path: "", "run", "debug eval".
void visit(const CLI::App& app, const std::string& path,
           const std::function<void(const CLI::App&, const std::string& path)>& visitor) {
  visitor(app, path);
  for (const CLI::App* command : commands_of(app)) {
    visit(*command, path + (path.empty() ? "" : " ") + command->get_name(), visitor);
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
  for (const CLI::Option* option : app.get_options()) {
    const std::string names = joined(spellings(*option), ", ");
    const std::string heading = names.empty()
                                    ? fmt::format("\\fI{}\\fR", roff(argument_text(*option)))
                                    : fmt::format("\\fB{}\\fR \\fI{}\\fR", roff(names), roff(value_text(*option)));
    text += fmt::format(".TP\n{}\n{}", heading, roff(option->get_description()));
    if (!default_text(*option).empty()) text += fmt::format(" (default: {})", roff(default_text(*option)));
    text += "\n";
  }
  return text;
}

constexpr const char* kManExamples = R"(.SH EXAMPLES
.nf
zinc run 'Explain in two sentences why the sky is blue.'
git diff | zinc run 'Summarize this change.'
zinc chat qwen3\-4b\-instruct\-2507
zinc chat \-\-continue
zinc run hf:Qwen/Qwen3\-0.6B\-GGUF 'Hello' \-\-json
zinc serve \-\-port 8080
zinc check
.fi
)";

constexpr const char* kManEnd = R"(.SH EXIT STATUS
0: success. 1: failure; one line on standard error says why. 2: wrong usage. 130: interrupted by Ctrl\-C.
.SH ENVIRONMENT
.TP
\fBXDG_CACHE_HOME\fR, \fBXDG_CONFIG_HOME\fR, \fBXDG_STATE_HOME\fR
where models, the default model and the conversations are stored
.TP
\fBHF_ENDPOINT\fR, \fBHF_TOKEN\fR, \fBHF_HOME\fR, \fBHF_HUB_CACHE\fR, \fBHF_HUB_OFFLINE\fR
as used by Hugging Face's own tools
.TP
\fBPIP_INDEX_URL\fR, \fBOLLAMA_MODELS\fR, \fBhttps_proxy\fR, \fBno_proxy\fR
as used by pip, Ollama and curl
.TP
\fBNO_COLOR\fR, \fBFORCE_COLOR\fR
disable colors; force colors even if standard output is not a terminal
.TP
\fBOMPI_COMM_WORLD_SIZE\fR, \fBPMIX_RANK\fR
set by mpirun and srun: \fB\-\-split\-hosts\fR needs one of them
.TP
\fBZINC_API_KEY\fR
API key of the server, as \fB\-\-api\-key\fR of \fBserve\fR, \fBbench serve\fR, \fBps\fR and \fBstop\fR
.TP
\fBZINC_REPLICA\fR
name of a server among several, as \fB\-\-replica\fR of \fBserve\fR
.TP
\fBHF_TOKEN_PATH\fR, \fBPIP_CONFIG_FILE\fR, \fBPIP_FIND_LINKS\fR, \fBPIP_EXTRA_INDEX_URL\fR, \fBPIP_NO_INDEX\fR, \fBVIRTUAL_ENV\fR
where Hugging Face's token and pip's settings are read from
.TP
\fBHOME\fR, \fBTERM\fR, \fBSSL_CERT_FILE\fR
as usual; \fBSSL_CERT_FILE\fR names the certificates that downloads are checked against
.SH FILES
.TP
~/.cache/zinc
downloaded models and compiled kernels
.TP
~/.local/state/zinc/conversations, ~/.local/state/zinc/chat_history
conversations and input history of \fBzinc chat\fR
)";

// The words a shell offers after this command.
std::vector<std::string> words_of(const CLI::App& app) {
  std::vector<std::string> words;
  for (const CLI::App* command : commands_of(app)) words.push_back(command->get_name());
  for (const CLI::Option* option : app.get_options()) {
    for (std::string& name : spellings(*option)) words.push_back(std::move(name));
  }
  return words;
}

std::string first_sentence(const std::string& text) { return text.substr(0, text.find('\n')); }

// "' run'|' chat'|' debug eval'": all command paths as a shell pattern; fish separates them with blanks.
std::string path_pattern(const CLI::App& root, const char* between) {
  std::string pattern;
  visit(root, "", [&](const CLI::App&, const std::string& path) {
    if (!path.empty()) pattern += (pattern.empty() ? "" : between) + quoted_word(" " + path);
  });
  return pattern;
}

// The allowed values of an option that takes one of a list of words: CLI11 writes them as "TEXT:{f32,f16,q8_0}".
std::string values_of(const CLI::Option& option) {
  if (option.check_lname("backend")) return replace_all(backend_names(), ",", "");
  const std::string type = option.get_type_name();
  const size_t open = type.find('{'), close = type.rfind('}');
  if (open == std::string::npos || close == std::string::npos || close < open) return "";
  return replace_all(type.substr(open + 1, close - open - 1), ",", " ");
}

// Calls `visitor` for each option with such a list: the command path, the option's spellings (none: a positional
// argument) and the list.
void visit_values(const CLI::App& root,
                  const std::function<void(const std::string& path, const std::vector<std::string>& names,
                                           const std::string& values)>& visitor) {
  visit(root, "", [&](const CLI::App& app, const std::string& path) {
    for (const CLI::Option* option : app.get_options()) {
      if (const std::string values = values_of(*option); !values.empty()) visitor(path, spellings(*option), values);
    }
  });
}

// Branches of a shell's `case "$path $prev" in` that set `values`, and those for positional arguments.
struct ValueCases {
  std::string options, arguments;
};
ValueCases value_cases(const CLI::App& root) {
  ValueCases out;
  visit_values(root, [&](const std::string& path, const std::vector<std::string>& names, const std::string& values) {
    std::string pattern;
    for (const std::string& name : names) {
      pattern += (pattern.empty() ? "" : "|") + quoted_word(fmt::format(" {} {}", path, name));
    }
    if (!names.empty()) out.options += fmt::format("    {}) values={} ;;\n", pattern, quoted_word(values));
    if (names.empty())
      out.arguments += fmt::format("    {}) values={} ;;\n", quoted_word(" " + path), quoted_word(values));
  });
  return out;
}

}  // namespace

std::string man_page(const CLI::App& root) {
  std::string text = fmt::format(".TH ZINC 1 \"\" \"{}\" \"User commands\"\n", roff(version_text()));
  text += ".SH NAME\nzinc \\- run language models locally\n.SH SYNOPSIS\n.B zinc\n.I COMMAND\n[\\fIOPTIONS\\fR]\n";
  text +=
      ".SH DESCRIPTION\nzinc runs language models in the GGUF format: it answers one prompt (\\fBrun\\fR), holds a\n"
      "conversation (\\fBchat\\fR) or serves requests over HTTP (\\fBserve\\fR). If no model is given, the default "
      "model\n"
      "is used, and downloaded on first use.\n";
  text += kManExamples;
  text += ".SH COMMANDS\n";
  visit(root, "", [&](const CLI::App& app, const std::string& path) {
    if (path.empty() || path.starts_with("debug")) return;
    text += fmt::format(".SS zinc {}\n{}\n{}", roff(path), roff(app.get_description()), man_options(app));
  });
  return text + kManEnd;
}

std::string bash_completion(const CLI::App& root) {
  std::string cases;
  visit(root, "", [&](const CLI::App& app, const std::string& path) {
    cases += fmt::format("    {}) words={} ;;\n", quoted_word(path.empty() ? "" : " " + path),
                         quoted_word(joined(words_of(app), " ")));
  });
  const ValueCases values = value_cases(root);
  return fmt::format(R"sh(# bash completion for zinc; generated by `zinc completion bash`
_zinc() {{
  local line=${{COMP_LINE:0:COMP_POINT}} cur= prev= path= word words= values= i
  local -a typed
  read -a typed <<< "$line"  # split at blanks only: bash also splits hf:NAME
  if [[ $line != *[[:blank:]] ]]; then cur=${{typed[-1]}}; unset 'typed[-1]'; fi
  for word in "${{typed[@]:1}}"; do
    case "$path $word" in {}) path="$path $word" ;; esac
    prev=$word
  done
  case "$path $prev" in
{}    *) case $path in
{}    esac ;;
  esac
  case $path in
{}  esac
  if [[ -n $values && $cur != -* ]]; then
    words=$values
  elif [[ -n $path && $cur != -* ]]; then
    words="$words $("${{typed[0]}}" list --names 2>/dev/null)"
  fi
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
  if [[ -n $path && -z $values ]]; then mapfile -t -O "${{#COMPREPLY[@]}}" COMPREPLY < <(compgen -f -- "$cur"); fi
  if [[ $cur == *:* && $COMP_WORDBREAKS == *:* ]]; then  # bash replaces only the part after the colon
    for i in "${{!COMPREPLY[@]}}"; do COMPREPLY[i]=${{COMPREPLY[i]#"${{cur%"${{cur##*:}}"}}"}}; done
  fi
}}
complete -o filenames -F _zinc zinc
)sh",
                     path_pattern(root, "|"), values.options, values.arguments, cases);
}

std::string zsh_completion(const CLI::App& root) {
  std::string cases;
  visit(root, "", [&](const CLI::App& app, const std::string& path) {
    std::string commands, options;
    const auto entry = [&](const std::string& name, const std::string& help) {
      return "      " + quoted_word(replace_all(name, ":", "\\:") + ":" + first_sentence(help)) + "\n";
    };
    for (const CLI::App* command : commands_of(app)) commands += entry(command->get_name(), command->get_description());
    for (const CLI::Option* option : app.get_options()) {
      for (const std::string& name : spellings(*option)) options += entry(name, option->get_description());
    }
    cases += fmt::format("    {})\n    commands=(\n{}    ) options=(\n{}    ) ;;\n",
                         quoted_word(path.empty() ? "" : " " + path), commands, options);
  });
  const ValueCases values = value_cases(root);
  return fmt::format(R"sh(#compdef zinc
# zsh completion for zinc; generated by `zinc completion zsh`
_zinc() {{
  local chain= word values=
  local -a commands options models
  for word in ${{words[2,CURRENT-1]}}; do
    case "$chain $word" in {}) chain="$chain $word" ;; esac
  done
  case "$chain ${{words[CURRENT-1]}}" in
{}    *) case $chain in
{}    esac ;;
  esac
  if [[ -n $values && $PREFIX != -* ]]; then
    compadd -- ${{=values}}
    return
  fi
  case $chain in
{}  esac
  (( $#commands )) && _describe command commands
  _describe -o option options
  if [[ -n $chain && $PREFIX != -* ]]; then
    models=(${{(f)"$(${{words[1]}} list --names 2>/dev/null)"}})
    compadd -a models
    _files
  fi
}}
if [[ $funcstack[1] == _zinc ]]; then _zinc "$@"; else compdef _zinc zinc; fi
)sh",
                     path_pattern(root, "|"), values.options, values.arguments, cases);
}

std::string fish_completion(const CLI::App& root) {
  std::string text = fmt::format(R"sh(# fish completion for zinc; generated by `zinc completion fish`
function __zinc_at  # whether the typed commands are exactly $argv[1]
  set -l chain ''
  for word in (commandline -opc)[2..]
    switch "$chain $word"
      case {}
        set chain "$chain $word"
    end
  end
  test "$chain" = "$argv[1]"
end
)sh",
                                 path_pattern(root, " "));
  std::string without_models = "not __zinc_at ''";
  visit(root, "", [&](const CLI::App& app, const std::string& path) {
    const std::string when = fmt::format("__zinc_at {}", quoted_word(path.empty() ? "" : " " + path));
    const std::string start = fmt::format("complete -c zinc -n {}", quoted_word(when));
    for (const CLI::App* command : commands_of(app)) {
      text += fmt::format("{} -f -a {} -d {}\n", start, command->get_name(), quoted_word(command->get_description()));
    }
    for (const CLI::Option* option : app.get_options()) {
      std::string names;
      for (const std::string& name : option->get_snames()) names += " -s " + name;
      for (const std::string& name : option->get_lnames()) names += " -l " + name;
      const std::string values = values_of(*option);
      const std::string choice = values.empty() ? "" : fmt::format(" -x -a {}", quoted_word(values));
      if (!names.empty()) {
        text +=
            fmt::format("{}{}{} -d {}\n", start, names, choice, quoted_word(first_sentence(option->get_description())));
      } else if (!values.empty()) {
        text += fmt::format("{} -f -a {}\n", start, quoted_word(values));
        without_models += fmt::format("; and not __zinc_at {}", quoted_word(" " + path));
      }
    }
  });
  return text + fmt::format("complete -c zinc -n {} -a '(zinc list --names 2>/dev/null)' -d model\n",
                            quoted_word(without_models));
}

}  // namespace zinc
