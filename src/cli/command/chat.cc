// `zinc chat [MODEL]`: a conversation on the terminal, or with standard input a pipe: each line a turn.
#include <fmt/core.h>
#include <unistd.h>

#include <memory>

#include "cli/chat/chat_commands.h"
#include "cli/chat/history_file.h"
#include "cli/chat/line_editor.h"
#include "cli/command.h"
#include "cli/hub_settings.h"
#include "cli/model_file.h"
#include "cli/number_between.h"
#include "cli/serve_page.h"
#include "cli/terminal.h"

namespace zinc {
namespace {

struct Options {
  ChatOptions chat;
  std::string system;
  bool no_colour = false;
  bool no_history = false;
  bool on_page = false;
};

Result<std::unique_ptr<LineSource>> open_lines(const ScreenKind& kind) {
  if (!kind.is_interactive || !kind.is_terminal || is_dumb_terminal()) {
    const Prompts there = kind.is_terminal ? Prompts::to_output : Prompts::to_errors;
    return std::unique_ptr<LineSource>(std::make_unique<PlainLines>(kind.is_interactive ? there : Prompts::none));
  }
  ZINC_TRY(editor, LineEditor::create(chat_command_words()));
  return std::unique_ptr<LineSource>(std::move(editor));
}

// Questions of this chat and of earlier ones, for the arrow keys.
class Memory {
 public:
  Memory(LineSource& lines, bool is_kept) : lines_(lines) {
    const Result<std::filesystem::path> folder = state_folder();
    if (!is_kept || !folder.ok()) return;
    file_.emplace(folder.value() / "chat_history");
    for (const std::string& message : file_->read()) lines_.remember(message);
  }
  // A history that cannot be kept is worth one remark, not the chat.
  void add(const std::string& message, ChatScreen& screen) {
    lines_.remember(message);
    if (!file_) return;
    if (const Status added = file_->add(message); !added.ok()) {
      screen.complain("the history is not kept: " + added.error().message);
      file_.reset();
    }
  }

 private:
  LineSource& lines_;
  std::optional<HistoryFile> file_;
};

// One message: a command or a question. A person is told of a mistake and the chat goes on; a script has to stop.
Result<Next> take(ChatSession& session, const Input& input) {
  const std::string& message = input.text;
  const bool is_escaped = !input.is_quoted && message.starts_with("//");
  const bool is_command = !input.is_quoted && !is_escaped && message.starts_with('/');
  Result<Next> next = Next::go_on;
  if (is_command) {
    next = run_chat_command(session, message);
  } else if (Status asked = session.ask(is_escaped ? message.substr(1) : message); !asked.ok()) {
    next = asked.error();
  }
  if (!session.screen().written().ok()) return session.screen().written().error();
  if (next.ok() || !session.screen().kind().is_interactive || !session.has_model()) return next;
  session.screen().complain(next.error().message);
  return Next::go_on;
}

bool is_blank(const std::string& text) { return text.find_first_not_of(" \t\n") == std::string::npos; }

Status talk(ChatSession& session, LineSource& lines, Memory& memory) {
  bool was_interrupted = false;
  while (!session.was_told_to_end()) {
    ZINC_TRY(input, read_message(lines, session.screen().prompt()));
    if (input.kind == InputKind::end) break;
    if (input.kind == InputKind::interrupted) {
      if (was_interrupted) break;
      was_interrupted = true;
      session.screen().whisper("Ctrl-C again, or Ctrl-D, leaves");
      continue;
    }
    was_interrupted = false;
    if (is_blank(input.text)) continue;
    memory.add(as_typed(input), session.screen());
    ZINC_TRY(next, take(session, input));
    if (next == Next::quit) break;
  }
  return session.screen().written();
}

Status run(const Options& options) {
  if (options.on_page) return serve_page(options.chat.model.path);
  const bool is_terminal = ::isatty(STDOUT_FILENO) == 1;
  ChatScreen screen({.is_terminal = is_terminal,
                     .has_colours = is_terminal && !options.no_colour && shows_colours(STDOUT_FILENO),
                     .is_interactive = ::isatty(STDIN_FILENO) == 1});
  ChatSession session(options.chat, screen);
  ZINC_TRY(loaded, session.load_model(options.chat.model.path));
  session.set_system(options.system);
  if (screen.kind().is_interactive) {
    screen.whisper(fmt::format("{} on {}, context {}. /help lists commands.", session.model().name(),
                               session.model().backend(), session.model().limits().context));
    screen.whisper(session.sampling_line());
  }
  ZINC_TRY(lines, open_lines(screen.kind()));
  Memory memory(*lines, screen.kind().is_interactive && !options.no_history);
  return talk(session, *lines, memory);
}

std::function<Status()> declare(CLI::App& app) {
  auto options = std::make_shared<Options>();
  ChatOptions& chat = options->chat;
  app.add_option("model", chat.model.path, kOptionalModelHelp);
  app.add_option("--system", options->system, "the system message");
  app.add_option("-n,--max-tokens", chat.max_tokens, "the longest answer, in tokens (0: until the context is full)")
      ->check(number_between(0, 1 << 30))
      ->capture_default_str();
  app.add_option("-c,--context", chat.context, "positions of the context (0: the model's own, as far as memory holds)")
      ->check(number_between(0, 1 << 30))
      ->capture_default_str();
  declare_thinking_option(app, chat.thinking);
  app.add_flag("--no-color", options->no_colour, "no colours; also where NO_COLOR is set or TERM is dumb");
  app.add_flag("--no-history", options->no_history, "neither read nor write the history of questions");
  declare_sampling_options(app, chat.sampling);
  declare_model_options(app, chat.model);
  CLI::Option* const on_page = app.add_flag("--web", options->on_page, "in the browser: as `zinc serve MODEL --open`");
  for (CLI::Option* other : app.get_options()) {  // the page has settings of its own
    if (other != on_page && !other->get_positional() && other != app.get_help_ptr()) on_page->excludes(other);
  }
  check_usage(app, [options] { return options->chat.sampling.check(); });
  return [options] { return run(*options); };
}

}  // namespace

extern const Command k_command_chat = {.path = "chat", .summary = "talk with a model", .declare = declare};

}  // namespace zinc
