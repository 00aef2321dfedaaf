#include "cli/chat/line_editor.h"

#include <histedit.h>
#include <langinfo.h>
#include <unistd.h>

#include <array>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <string_view>

#include "cli/output.h"
#include "cli/terminal.h"

namespace zinc {
namespace {

constexpr std::string_view kPasteOn = "\x1b[?2004h", kPasteOff = "\x1b[?2004l";  // bracketed paste mode
constexpr std::wstring_view kPasteEnd = L"\x1b[201~";
constexpr wchar_t kCtrlC = 3;
constexpr int kHistorySize = 1000;

// libedit uses the encoding of the locale; without UTF-8, everything but ASCII would be lost.
void use_utf8() {
  std::setlocale(LC_CTYPE, "");
  if (std::string_view(::nl_langinfo(CODESET)) != "UTF-8") std::setlocale(LC_CTYPE, "C.UTF-8");
}

// Enables bracketed paste mode for its lifetime. A signal that ends the program disables it first.
class PasteBrackets {
 public:
  PasteBrackets() {
    for (size_t i = 0; i < kSignals.size(); ++i) {
      struct sigaction action = {};
      action.sa_handler = [](int signal) {
        [[maybe_unused]] const ssize_t n = ::write(STDOUT_FILENO, kPasteOff.data(), kPasteOff.size());
        ::signal(signal, SIG_DFL);
        ::raise(signal);
      };
      ::sigaction(kSignals[i], &action, &previous_[i]);
    }
    written_ = write_output(kPasteOn);
  }
  ~PasteBrackets() {
    [[maybe_unused]] const Status off = write_output(kPasteOff);
    for (size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &previous_[i], nullptr);
  }
  PasteBrackets(const PasteBrackets&) = delete;
  PasteBrackets& operator=(const PasteBrackets&) = delete;
  const Status& written() const { return written_; }

 private:
  static constexpr std::array kSignals = {SIGTERM, SIGHUP, SIGQUIT};
  std::array<struct sigaction, kSignals.size()> previous_;
  Status written_ = ok_status();
};

// Terminals send CR for newlines; other control characters are dropped.
void append_pasted(std::wstring& text, wchar_t c) {
  if (c == L'\r') c = L'\n';
  if (c >= 0x20 || c == L'\n' || c == L'\t') text += c;
}

}  // namespace

struct LineEditor::State {
  EditLine* editor = nullptr;
  History* history = nullptr;
  std::string prompt;
  Complete complete_line;
  bool was_interrupted = false;
  std::string dropped;         // by the interrupt
  bool begins_pasted = false;  // several lines were pasted at the start of the line
  bool is_vi = false;          // ~/.editrc says so

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
    const LineInfo* const line = ::el_line(editor);
    of(editor).dropped.assign(line->buffer, static_cast<size_t>(line->lastchar - line->buffer));
    of(editor).was_interrupted = true;
    return CC_EOF;
  }

  static unsigned char suspend(EditLine* editor, int) {
    ::el_set(editor, EL_PREP_TERM, 0);
    [[maybe_unused]] const Status off = write_output(kPasteOff);  // the shell sets its own mode
    std::raise(SIGTSTP);
    [[maybe_unused]] const Status on = write_output(kPasteOn);
    ::el_set(editor, EL_PREP_TERM, 1);
    return CC_REDISPLAY;
  }

  // If the end-of-paste sequence never arrives, Ctrl-C ends the paste.
  static unsigned char paste(EditLine* editor, int key) {
    std::wstring text, tail;
    wchar_t c = 0;
    while (!tail.ends_with(kPasteEnd) && ::el_wgetc(editor, &c) == 1) {
      if (c == kCtrlC) return interrupt(editor, key);
      tail += c;
    }
    if (tail.ends_with(kPasteEnd)) tail.resize(tail.size() - kPasteEnd.size());
    for (const wchar_t each : tail) append_pasted(text, each);
    while (text.ends_with(L'\n')) text.pop_back();
    State& state = of(editor);
    const LineInfo* const line = ::el_line(editor);
    const bool is_first = state.is_vi ? line->lastchar == line->buffer : line->cursor == line->buffer;
    if (is_first) state.begins_pasted = text.find(L'\n') != std::wstring::npos;
    if (state.is_vi && !is_first) ::el_cursor(editor, 1);  // the preceding Esc moved the cursor one back
    if (::el_winsertstr(editor, text.c_str()) != 0) return CC_ERROR;
    const LineInfo* const after = ::el_line(editor);
    if (state.is_vi) ::el_push(editor, after->cursor == after->lastchar ? "a" : "i");  // and left insert mode
    return CC_REFRESH;
  }

  static unsigned char complete(EditLine* editor, int) {
    const LineInfo* const line = ::el_line(editor);
    const std::string typed(line->buffer, static_cast<size_t>(line->cursor - line->buffer));
    const Completion found = of(editor).complete_line(typed);
    if (found.words.empty()) return CC_REFRESH_BEEP;
    if (!found.insertion.empty() && ::el_insertstr(editor, found.insertion.c_str()) != 0) return CC_REFRESH_BEEP;
    if (found.words.size() == 1) return CC_REFRESH;
    const Status listed = write_output("\n" + candidate_table(found, terminal_width(STDOUT_FILENO)));
    return listed.ok() ? CC_REDISPLAY : CC_EOF;
  }

  // Bound after ~/.editrc is read: the chat needs these keys for interrupting and pasting.
  void bind_keys() {
    const auto add = [this](const char* name, const char* help, const char* key, auto function) {
      ::el_set(editor, EL_ADDFN, name, help, function);
      ::el_set(editor, EL_BIND, key, name, nullptr);
      if (is_vi) ::el_set(editor, EL_BIND, "-a", key, name, nullptr);
    };
    ::el_set(editor, EL_SETTY, "-d", "-isig", nullptr);  // Ctrl-C and Ctrl-Z are keys while a line is edited
    add("zinc-interrupt", "drop the line", "^C", &State::interrupt);
    add("zinc-suspend", "suspend the program", "^Z", &State::suspend);
    add("zinc-complete", "complete a command or its argument", "^I", &State::complete);
    ::el_set(editor, EL_ADDFN, "zinc-paste", "insert pasted text", &State::paste);
    // In vi insert mode, Esc switches to command mode: bind the rest of the sequence there.
    if (is_vi) {
      ::el_set(editor, EL_BIND, "-a", "[200~", "zinc-paste", nullptr);
    } else {
      ::el_set(editor, EL_BIND, "\\e[200~", "zinc-paste", nullptr);
    }
  }

  void bind_usual_keys() {
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

Result<std::unique_ptr<LineEditor>> LineEditor::create(Complete complete) {
  use_utf8();
  auto state = std::make_unique<State>();
  state->complete_line = std::move(complete);
  state->editor = ::el_init("zinc", stdin, stdout, stderr);
  state->history = ::history_init();
  if (!state->editor || !state->history) {
    return fail(ErrorCode::io, "cannot set up line editing on this terminal; use a pipe as standard input instead");
  }
  HistEvent event;
  ::history(state->history, &event, H_SETSIZE, kHistorySize);
  ::el_set(state->editor, EL_CLIENTDATA, state.get());
  ::el_set(state->editor, EL_PROMPT_ESC, &State::show_prompt, '\1');
  ::el_set(state->editor, EL_HIST, &::history, state->history);
  ::el_set(state->editor, EL_EDITOR, "emacs");
  ::el_set(state->editor, EL_SIGNAL, 1);  // redraw when the window is resized
  state->bind_usual_keys();
  ::el_source(state->editor, nullptr);  // ~/.editrc
  const char* kind = nullptr;
  ::el_get(state->editor, EL_EDITOR, &kind);
  state->is_vi = kind && std::string_view(kind) == "vi";
  state->bind_keys();
  return std::unique_ptr<LineEditor>(new LineEditor(std::move(state)));
}

Result<Input> LineEditor::read_line(const std::string& prompt) {
  state_->prompt = prompt;
  state_->was_interrupted = state_->begins_pasted = false;
  Input input;
  {
    const PasteBrackets brackets;
    if (!brackets.written().ok()) return brackets.written().error();
    // el_gets prints the prompt before it leaves canonical mode: a Ctrl-D typed in between would be lost.
    ::el_set(state_->editor, EL_PREP_TERM, 1);
    int n_chars = 0;
    const char* const line = ::el_gets(state_->editor, &n_chars);
    if (state_->was_interrupted) {
      input = {.kind = InputKind::interrupted, .text = std::move(state_->dropped)};
    } else if (!line || n_chars <= 0) {
      input.kind = InputKind::end;
    } else {
      input.text = line;
      if (input.text.ends_with('\n')) input.text.pop_back();
      input.is_quoted = state_->begins_pasted && input.text.find('\n') != std::string::npos;
    }
  }
  if (Status ended = write_output(input.kind == InputKind::text ? "" : "\n"); !ended.ok()) return ended.error();
  return input;
}

void LineEditor::add_to_history(const std::string& message) {
  HistEvent event;
  ::history(state_->history, &event, H_ENTER, message.c_str());
}

}  // namespace zinc
