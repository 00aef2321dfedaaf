#include "cli/prompt_input.h"

#include <unistd.h>

#include "base/mapped_file.h"
#include "base/sanitize_for_terminal.h"
#include "cli/hub_settings.h"
#include "cli/model_file.h"
#include "cli/output.h"
#include "cli/shell_word.h"
#include "cli/standard_input.h"
#include "hub/resolve.h"

namespace zinc {
namespace {

constexpr const char* kEmptyPrompt = "the prompt is empty; pass it as an argument or on standard input";
constexpr const char* kWaiting =
    "zinc: waiting for standard input, which is a pipe; end it with Ctrl-D, or use --no-stdin to ignore it";

// The final newline of `echo` or an editor is not part of the prompt.
void drop_last_newline(std::string& text) {
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
}

// An error if the word is the name of a model that zinc does not know rather than a question.
Status check_question(const std::string& word) {
  const Result<HubSettings> settings = hub_settings();
  if (!settings.ok() || !resembles_model(settings.value(), word)) return ok_status();
  const Result<ModelReference> known = make_model_reference(settings.value(), word);
  if (known.ok()) return ok_status();
  return fail(ErrorCode::not_found, "{}. To ask the word itself: zinc run -p {}", known.error().message,
              shell_word(word));
}

// The model and the question among the arguments; the question is unset if there is none.
struct Words {
  std::string model;
  std::optional<std::string> question;
};
Result<Words> assign_words(const PromptArguments& arguments) {
  Words out{.model = arguments.model, .question = arguments.prompt};
  const std::vector<std::string>& words = arguments.words;
  if (words.size() == 2) {
    out.model = words[0];
    out.question = words[1];
  } else if (words.size() == 1 && !arguments.model.empty()) {
    out.question = words[0];
  } else if (words.size() == 1 && (arguments.prompt || is_model_name(words[0]))) {
    out.model = words[0];
  } else if (words.size() == 1) {
    if (Status question = check_question(words[0]); !question.ok()) return question.error();
    out.question = words[0];
  }
  return out;
}

Result<std::string> read_text(const PromptArguments& arguments, bool has_question) {
  if (!arguments.file.empty()) {
    ZINC_TRY(file, MappedFile::open(arguments.file));
    return std::string(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  }
  // Without a question, a closed standard input is an error of reading; with one, nothing is missing.
  const bool reads = !arguments.no_stdin && (has_question ? has_piped_input() : !::isatty(STDIN_FILENO));
  return reads ? read_standard_input(kWaiting) : std::string();
}

}  // namespace

Status check_arguments(const PromptArguments& arguments) {
  const size_t n_named = (arguments.model.empty() ? 0 : 1) + (arguments.prompt ? 1 : 0);
  if (arguments.words.size() + n_named > 2) {
    return fail(ErrorCode::invalid_input,
                "{} arguments where at most a model and a prompt are expected; quote the prompt: "
                "zinc run [MODEL] 'PROMPT'",
                arguments.words.size() + n_named);
  }
  const bool is_empty =
      arguments.prompt ? arguments.prompt->empty() : !arguments.words.empty() && arguments.words.back().empty();
  return is_empty && !arguments.raw ? fail(ErrorCode::invalid_input, kEmptyPrompt) : ok_status();
}

std::string named_model(const PromptArguments& arguments) {
  const Result<Words> words = assign_words(arguments);
  return words.ok() ? words.value().model : arguments.model;
}

std::string join_prompt(std::string text, const std::string& question) {
  if (text.empty() || question.empty()) return text.empty() ? question : text;
  while (text.ends_with('\n') || text.ends_with('\r')) text.pop_back();
  return text.empty() ? question : text + "\n\n" + question;
}

Result<PromptInput> read_prompt(const PromptArguments& arguments) {
  ZINC_TRY(words, assign_words(arguments));
  const bool is_missing = !words.question && arguments.file.empty();
  if (is_missing && ::isatty(STDIN_FILENO)) return PromptInput{.model = std::move(words.model), .text = {}};
  ZINC_TRY(text, read_text(arguments, words.question.has_value()));
  if (text.find('\0') != std::string::npos) {
    print_stderr(fmt::format("zinc: {} has zero bytes: it is probably not text",
                             arguments.file.empty() ? "standard input" : sanitize_for_terminal(arguments.file)));
  }
  if (!arguments.raw) drop_last_newline(text);
  std::string joined = join_prompt(std::move(text), words.question.value_or(""));
  if (joined.empty() && !arguments.raw) return fail(ErrorCode::invalid_input, kEmptyPrompt);
  return PromptInput{.model = std::move(words.model), .text = std::move(joined)};
}

}  // namespace zinc
