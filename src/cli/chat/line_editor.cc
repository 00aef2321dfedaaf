#include "cli/chat/line_editor.h"

#include <histedit.h>
#include <langinfo.h>

#include <clocale>
#include <csignal>
#include <cstdio>
#include <string_view>

#include "cli/output.h"

namespace zinc {
namespace {

constexpr std::string_view kPasteOn = "\x1b[?2004h", kPasteOff = "\x1b[?2004l";  // pasted text comes in brackets
constexpr std::wstring_view kPasteEnd = L"\x1b[201~";
constexpr int kHistorySize = 1000;

// libedit reads and writes in the locale's encoding; without one of UTF-8 everything but ASCII would be lost.
void use_utf8() {
  std::setlocale(LC_CTYPE, "");
  if (std::string_view(::nl_langinfo(CODESET)) != "UTF-8") std::setlocale(LC_CTYPE, "C.UTF-8");
}

// What a terminal sends in place of newlines, and what has no place in a message.
void append_pasted(std::wstring& text, wchar_t c) {
  if (c == L'\r') c = L'\n';
  if (c >= 0x20 || c == L'\n' || c == L'\t') text += c;
}

std::string common_start(const std::string& a, const std::string& b) {
  size_t n = 0;
  while (n < a.size() && n < b.size() && a[n] == b[n]) ++n;
  return a.substr(0, n);
}

}  // namespace

struct LineEditor::State {
  EditLine* editor = nullptr;
  History* history = nullptr;
  std::string prompt;
  std::vector<std::string> words;
  bool was_interrupted = false;

  ~State() {
    if (editor) ::el_end(editor);
    if (history) ::history_end(history);
  }

  static State& of(EditLine* editor) {
    State* state = nullptr;
    ::el_get(editor, EL_CLIENTDATA, &state);
    return *state;
  }
  static char* show_prompt(EditLine* editor) { return of(editor).prompt.data(); }

  static unsigned char interrupt(EditLine* editor, int) {
    of(editor).was_interrupted = true;
    return CC_EOF;
  }

  static unsigned char suspend(EditLine* editor, int) {
    ::el_set(editor, EL_PREP_TERM, 0);
    std::raise(SIGTSTP);
    ::el_set(editor, EL_PREP_TERM, 1);
    return CC_REDISPLAY;
  }

  static unsigned char paste(EditLine* editor, int) {
    std::wstring text, tail;
    wchar_t c = 0;
    while (::el_wgetc(editor, &c) == 1) {
      tail += c;
      if (tail.ends_with(kPasteEnd)) break;
    }
    if (tail.ends_with(kPasteEnd)) tail.resize(tail.size() - kPasteEnd.size());
    for (const wchar_t each : tail) append_pasted(text, each);
    while (text.ends_with(L'\n')) text.pop_back();
    return ::el_winsertstr(editor, text.c_str()) == 0 ? CC_REFRESH : CC_ERROR;
  }

  static unsigned char complete(EditLine* editor, int) {
    const LineInfo* const line = ::el_line(editor);
    const std::string typed(line->buffer, static_cast<size_t>(line->cursor - line->buffer));
    std::string found;
    int n_found = 0;
    for (const std::string& word : of(editor).words) {
      if (!word.starts_with(typed)) continue;
      found = n_found++ == 0 ? word : common_start(found, word);
    }
    if (typed.empty() || n_found == 0) return CC_REFRESH_BEEP;
    if (n_found == 1) found += ' ';
    const std::string rest = found.substr(typed.size());
    return rest.empty() || ::el_insertstr(editor, rest.c_str()) != 0 ? CC_REFRESH_BEEP : CC_REFRESH;
  }

  void bind_keys() {
    const auto add = [this](const char* name, const char* help, const char* key, auto function) {
      ::el_set(editor, EL_ADDFN, name, help, function);
      ::el_set(editor, EL_BIND, key, name, nullptr);
    };
    ::el_set(editor, EL_SETTY, "-d", "-isig", nullptr);  // Ctrl-C and Ctrl-Z are keys while a line is edited
    add("zinc-interrupt", "drops the line", "^C", &State::interrupt);
    add("zinc-suspend", "stops the program", "^Z", &State::suspend);
    add("zinc-paste", "takes pasted text as it is", "\\e[200~", &State::paste);
    add("zinc-complete", "completes a command", "^I", &State::complete);
    const std::pair<const char*, const char*> kUsual[] = {
        {"^R", "em-inc-search-prev"},      {"\\e[A", "ed-prev-history"}, {"\\e[B", "ed-next-history"},
        {"\\eOA", "ed-prev-history"},      {"\\eOB", "ed-next-history"}, {"\\e[1~", "ed-move-to-beg"},
        {"\\e[H", "ed-move-to-beg"},       {"\\e[4~", "ed-move-to-end"}, {"\\e[F", "ed-move-to-end"},
        {"\\e[3~", "ed-delete-next-char"}, {"\\e[1;5C", "em-next-word"}, {"\\e[1;5D", "ed-prev-word"},
        {"^W", "ed-delete-prev-word"},
    };
    for (const auto& [key, command] : kUsual) ::el_set(editor, EL_BIND, key, command, nullptr);
  }
};

LineEditor::LineEditor(std::unique_ptr<State> state) : state_(std::move(state)) {}
LineEditor::~LineEditor() = default;

Result<std::unique_ptr<LineEditor>> LineEditor::create(std::vector<std::string> words) {
  use_utf8();
  auto state = std::make_unique<State>();
  state->words = std::move(words);
  state->editor = ::el_init("zinc", stdin, stdout, stderr);
  state->history = ::history_init();
  if (!state->editor || !state->history) {
    return fail(ErrorCode::io, "the terminal cannot be used for editing lines; standard input may be a pipe instead");
  }
  HistEvent event;
  ::history(state->history, &event, H_SETSIZE, kHistorySize);
  ::el_set(state->editor, EL_CLIENTDATA, state.get());
  ::el_set(state->editor, EL_PROMPT_ESC, &State::show_prompt, '\1');
  ::el_set(state->editor, EL_HIST, &::history, state->history);
  ::el_set(state->editor, EL_EDITOR, "emacs");
  ::el_set(state->editor, EL_SIGNAL, 1);  // a resized window is drawn anew
  state->bind_keys();
  ::el_source(state->editor, nullptr);  // ~/.editrc
  return std::unique_ptr<LineEditor>(new LineEditor(std::move(state)));
}

Result<Input> LineEditor::read_line(const std::string& prompt) {
  state_->prompt = prompt;
  state_->was_interrupted = false;
  if (Status on = write_output(kPasteOn); !on.ok()) return on.error();
  int n_chars = 0;
  const char* const line = ::el_gets(state_->editor, &n_chars);
  Input input;
  if (state_->was_interrupted) {
    input.kind = InputKind::interrupted;
  } else if (!line || n_chars <= 0) {
    input.kind = InputKind::end;
  } else {
    input.text = line;
    if (input.text.ends_with('\n')) input.text.pop_back();
  }
  const std::string after = std::string(kPasteOff) + (input.kind == InputKind::text ? "" : "\n");
  if (Status off = write_output(after); !off.ok()) return off.error();
  return input;
}

void LineEditor::remember(const std::string& message) {
  HistEvent event;
  ::history(state_->history, &event, H_ENTER, message.c_str());
}

}  // namespace zinc
