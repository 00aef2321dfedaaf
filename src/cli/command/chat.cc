// `zinc chat [MODEL]`: a conversation on the terminal; if standard input is a pipe, each line is a turn.
#include <fmt/core.h>
#include <unistd.h>

#include <memory>

#include "cli/chat/chat_commands.h"
#include "cli/chat/history_file.h"
#include "cli/chat/line_editor.h"
#include "cli/chat/start_chat.h"
#include "cli/command.h"
#include "cli/hub_settings.h"
#include "cli/model_file.h"
#include "cli/number_in_range.h"
#include "cli/serve_web_ui.h"
#include "cli/terminal.h"

namespace zinc::command_chat {
namespace {

struct Options {
  ChatOptions chat;
  std::string system;
  bool no_color = false;
  bool no_history = false;
  bool in_browser = false;
};

Result<std::unique_ptr<LineSource>> open_lines(const ScreenKind& kind) {
  if (!kind.is_interactive || !kind.is_terminal || is_dumb_terminal()) {
    const Prompts prompts = kind.is_terminal ? Prompts::to_output : Prompts::to_errors;
    return std::unique_ptr<LineSource>(std::make_unique<PlainLines>(kind.is_interactive ? prompts : Prompts::none));
  }
  ZINC_TRY(editor, LineEditor::create(chat_command_words()));
  return std::unique_ptr<LineSource>(std::move(editor));
}

// Messages of this chat and of earlier ones, for the arrow keys.
class InputHistory {
 public:
  InputHistory(LineSource& lines, bool is_saved) : lines_(lines) {
    const Result<std::filesystem::path> folder = state_folder();
    if (!is_saved || !folder.ok()) return;
    file_.emplace(folder.value() / "chat_history");
    for (const std::string& message : file_->read()) lines_.add_to_history(message);
  }
  // A history file that cannot be written costs one warning, not the chat.
  void add(const std::string& message, ChatScreen& screen) {
    lines_.add_to_history(message);
    if (!file_) return;
    if (const Status added = file_->add(message); !added.ok()) {
      screen.print_warning("input history is disabled: " + added.error().message);
      file_.reset();
    }
  }

 private:
  LineSource& lines_;
  std::optional<HistoryFile> file_;
};

// Handles one message, a command or a question. Interactive: an error is shown and the chat continues. In a script an
// error ends the program.
Result<ChatAction> handle_message(ChatSession& session, const Input& input) {
  const std::string& message = input.text;
  const bool is_escaped = !input.is_quoted && message.starts_with("//");
  const bool is_command = !input.is_quoted && !is_escaped && message.starts_with('/');
  Result<ChatAction> next = ChatAction::proceed;
  if (is_command) {
    next = run_chat_command(session, message);
  } else if (Status asked = session.ask(is_escaped ? message.substr(1) : message); !asked.ok()) {
    next = asked.error();
  }
  if (!session.screen().written().ok()) return session.screen().written().error();
  if (next.ok() || !session.screen().kind().is_interactive || !session.has_model()) return next;
  session.screen().print_warning(next.error().message);
  return ChatAction::proceed;
}

bool is_blank(const std::string& text) { return text.find_first_not_of(" \t\n") == std::string::npos; }

Status run_chat(ChatSession& session, LineSource& lines, InputHistory& history) {
  bool was_interrupted = false;
  while (!session.shutdown_requested()) {
    ZINC_TRY(input, read_message(lines, session.screen().prompt()));
    if (input.kind == InputKind::end) break;
    if (input.kind == InputKind::interrupted) {
      if (was_interrupted) break;
      was_interrupted = true;
      session.screen().print_status("press Ctrl-C again or Ctrl-D to exit");
      continue;
    }
    was_interrupted = false;
    if (is_blank(input.text)) continue;
    history.add(as_typed(input), session.screen());
    ZINC_TRY(next, handle_message(session, input));
    if (next == ChatAction::quit) break;
  }
  return session.screen().written();
}

Status run(const Options& options) {
  if (options.in_browser) return serve_web_ui(options.chat.model.path);
  const bool is_terminal = ::isatty(STDOUT_FILENO) == 1;
  ChatScreen screen({.is_terminal = is_terminal,
                     .has_colors = is_terminal && !options.no_color && shows_colors(STDOUT_FILENO),
                     .is_interactive = ::isatty(STDIN_FILENO) == 1});
  ChatSession session(options.chat, screen);
  ZINC_TRY(loaded, session.load_model(options.chat.model.path));
  session.set_system(options.system);
  if (screen.kind().is_interactive) {
    screen.print_status(fmt::format("{} on {}, context {}. /help lists commands.", session.model().name(),
                                    session.model().backend(), session.model().limits().context));
    screen.print_status(session.sampling_line());
  }
  ZINC_TRY(lines, open_lines(screen.kind()));
  InputHistory history(*lines, screen.kind().is_interactive && !options.no_history);
  return run_chat(session, *lines, history);
}

std::function<Status()> declare(CLI::App& app) {
  auto options = std::make_shared<Options>();
  ChatOptions& chat = options->chat;
  app.add_option("model", chat.model.path, kOptionalModelHelp);
  app.add_option("--system", options->system, "system message");
  app.add_option("-n,--max-tokens", chat.max_tokens, "maximum tokens per answer (0: until the context is full)")
      ->check(number_in_range(0, 1 << 30))
      ->capture_default_str();
  app.add_option("-c,--context,--ctx-size", chat.context,
                 "context length in tokens (0: the model's maximum, if memory allows)")
      ->check(number_in_range(0, 1 << 30))
      ->capture_default_str();
  declare_thinking_options(app, chat.thinking);
  app.add_flag("--no-color", options->no_color, "no colors; also if NO_COLOR is set or TERM is dumb");
  app.add_flag("--no-history", options->no_history, "do not read or write the input history");
  declare_sampling_options(app, chat.sampling);
  declare_chat_template_option(app, chat.model);
  declare_model_options(app, chat.model);
  CLI::Option* const in_browser =
      app.add_flag("--web", options->in_browser, "chat in the browser: same as `zinc serve MODEL --open`");
  for (CLI::Option* other : app.get_options()) {  // the web UI has its own settings
    if (other != in_browser && !other->get_positional() && other != app.get_help_ptr()) in_browser->excludes(other);
  }
  check_usage(app, [options] { return options->chat.sampling.check(); });
  return [options] { return run(*options); };
}

}  // namespace

extern const Command k_command_chat = {.path = "chat", .summary = "chat with a model", .declare = declare};

}  // namespace zinc::command_chat

zinc::Status zinc::start_chat(const ChatOptions& options, const std::string& system) {
  command_chat::Options chat;
  chat.chat = options;
  chat.system = system;
  return command_chat::run(chat);
}
