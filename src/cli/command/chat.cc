// `zinc chat [MODEL]`: a conversation on the terminal; if standard input is a pipe, each line is a turn.
#include <fmt/core.h>
#include <unistd.h>

#include <memory>
#include <utility>

#include "cli/chat/chat_commands.h"
#include "cli/chat/completion.h"
#include "cli/chat/conversation_store.h"
#include "cli/chat/history_file.h"
#include "cli/chat/line_editor.h"
#include "cli/chat/start_chat.h"
#include "cli/command.h"
#include "cli/hub_settings.h"
#include "cli/model_file.h"
#include "cli/model_memory.h"
#include "cli/number_in_range.h"
#include "cli/output.h"
#include "cli/serve_web_ui.h"
#include "cli/speculation_option.h"
#include "cli/terminal.h"
#include "hub/inventory.h"

namespace zinc::command_chat {
namespace {

struct Options {
  ChatOptions chat;
  std::string system;
  std::vector<std::string_view> parsed = {};  // settings on the command line
  bool has_system = false;                    // on the command line; it may be empty
  bool no_color = false;
  bool no_history = false;
  bool in_browser = false;
  bool continues = false;  // an earlier conversation
  std::string continued;   // its number or a part of its title; empty: the latest
  bool lists = false;
  std::vector<std::string> deleted;
};

std::vector<std::string> model_names(ModelNames wanted) {
  std::vector<std::string> names;
  const Result<HubSettings> settings = hub_settings();
  if (!settings.ok()) return names;
  for (const ModelEntry& entry : list_models(settings.value(), host_memory())) {
    if (wanted == ModelNames::all || !entry.path.empty()) names.push_back(entry.id);
  }
  return names;
}

Result<std::unique_ptr<LineSource>> open_lines(const ScreenKind& kind) {
  if (!kind.is_interactive || !kind.is_terminal || is_dumb_terminal()) {
    const Prompts prompts = kind.is_terminal ? Prompts::to_output : Prompts::to_errors;
    return std::unique_ptr<LineSource>(std::make_unique<PlainLines>(kind.is_interactive ? prompts : Prompts::none));
  }
  ZINC_TRY(editor, LineEditor::create([](std::string_view line) { return complete_chat_line(line, model_names); }));
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
      if (was_interrupted && input.text.empty()) break;  // with text, Ctrl-C only drops it
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

Status print_conversations() {
  ZINC_TRY(folder, conversation_folder());
  return write_output(conversation_table(ConversationStore(folder).list(), terminal_width(STDOUT_FILENO)));
}

Status delete_conversations(const std::vector<std::string>& wanted) {
  ZINC_TRY(folder, conversation_folder());
  const ConversationStore store(folder);
  std::vector<int> ids;
  for (const std::string& word : wanted) {
    if (word == "all") {
      for (const int id : store.ids()) ids.push_back(id);  // also those that cannot be read
      continue;
    }
    int id = 0;
    if (!CLI::detail::lexical_cast(word, id) || id <= 0)
      return fail(ErrorCode::invalid_input, "'{}' is not the number of a conversation; expected a number or all", word);
    ids.push_back(id);
  }
  Status failed = ok_status();  // the last failure; the others are deleted nevertheless
  for (const int id : ids) {
    if (const Status removed = store.remove(id); !removed.ok()) {
      failed = removed;
      continue;
    }
    ZINC_TRY(written, write_output(fmt::format("conversation {} deleted\n", id)));
  }
  return failed;
}

struct Continued {
  OpenConversation opened;
  StoredConversation stored;
};

// Opens the conversation and takes over its model and settings where the command line has none.
Result<Continued> open_conversation(const ConversationStore& store, Options& options) {
  std::string& model = options.chat.model.path;
  const bool is_number = options.continued.find_first_not_of("0123456789") == std::string::npos;
  const bool has_title = !is_number && store.find(options.continued).ok();            // before the name of a model
  if (!is_number && !has_title && model.empty() && is_model_name(options.continued))  // `zinc chat --continue MODEL`
    model = std::exchange(options.continued, {});
  ZINC_TRY(id, store.find(options.continued));
  ZINC_TRY(opened, store.open(id));
  ZINC_TRY(stored, store.read(id));
  if (model.empty()) model = stored.model;
  set_missing_settings(stored.settings, options.parsed, options.chat);
  return Continued{std::move(opened), std::move(stored)};
}

void greet(ChatSession& session, bool is_newly_kept) {
  ChatScreen& screen = session.screen();
  if (!screen.kind().is_interactive) return;
  screen.print_status(fmt::format("{} on {}, context {}. /help lists commands.", session.model().name(),
                                  session.model().instance().backend_name(), session.model().limits().context));
  screen.print_status(session.sampling_line());
  if (is_newly_kept) screen.print_status("The conversation will be kept; --no-history keeps nothing.");
}

Status load_first_model(ChatSession& session, const std::string& name, const std::optional<Continued>& continued) {
  Status loaded = session.load_model(name);
  const bool is_stored = continued && continued->stored.model == name;
  if (loaded.ok() || !is_stored || loaded.error().code == ErrorCode::cancelled) return loaded;
  return fail(loaded.error().code, "{}; to continue with another model: zinc chat MODEL --continue {}",
              loaded.error().message, continued->opened.id());
}

Status chat(Options& options) {
  const bool is_terminal = ::isatty(STDOUT_FILENO) == 1;
  ChatScreen screen({.is_terminal = is_terminal,
                     .has_colors = is_terminal && !options.no_color && shows_colors(STDOUT_FILENO),
                     .is_interactive = ::isatty(STDIN_FILENO) == 1,
                     .width = [] { return terminal_width(STDOUT_FILENO); }});
  const Result<std::filesystem::path> folder = conversation_folder();
  std::optional<Continued> continued;
  if (options.continues) {
    if (!folder.ok()) return folder.error();
    ZINC_TRY(opened, open_conversation(ConversationStore(folder.value()), options));
    continued = std::move(opened);
  }
  ChatSession session(options.chat, screen);
  if (Status loaded = load_first_model(session, options.chat.model.path, continued); !loaded.ok()) return loaded;
  const bool keeps = folder.ok() && !options.no_history && (screen.kind().is_interactive || continued);
  greet(session, /*is_newly_kept=*/keeps && !continued);
  if (keeps) session.keep_in(ConversationStore(folder.value()));
  if (continued) session.resume(std::move(continued->opened), std::move(continued->stored.conversation));
  if (options.has_system) session.set_system(options.system);
  if (continued) session.show_last_turns();
  ZINC_TRY(lines, open_lines(screen.kind()));
  InputHistory history(*lines, screen.kind().is_interactive && !options.no_history);
  Status ended = run_chat(session, *lines, history);
  if (ended.ok() && session.kept_as() && screen.kind().is_interactive) {
    screen.print_status(
        fmt::format("The conversation is kept: `zinc chat --continue {}` continues it.", *session.kept_as()));
  }
  return ended;
}

Status run(Options& options) {
  if (options.in_browser) return serve_web_ui(options.chat.model.path);
  if (options.lists) return print_conversations();
  return options.deleted.empty() ? chat(options) : delete_conversations(options.deleted);
}

void declare_conversation_options(CLI::App& app, Options& options) {
  CLI::Option* const resume =
      app.add_option_function<std::string>(
             "--continue",
             [&options](const std::string& word) {
               options.continues = true;
               options.continued = word;
             },
             "continue a conversation: the latest, one by its number, or the latest with TEXT in its title; its model, "
             "system message and settings apply unless others are given")
          ->option_text("[ID|TEXT]")
          ->expected(0, 1)
          ->trigger_on_parse();
  CLI::Option* const list = app.add_flag("--list", options.lists, "list the kept conversations")->excludes(resume);
  CLI::Option* const removal =
      app.add_option("--delete", options.deleted, "delete kept conversations by number, or all")
          ->option_text("ID...|all")
          ->excludes(resume)
          ->excludes(list);
  app.add_flag("--no-history", options.no_history, kNoHistoryHelp)->excludes(resume)->excludes(list)->excludes(removal);
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
  declare_conversation_options(app, *options);
  declare_sampling_options(app, chat.sampling);
  declare_speculation_option(app, chat.speculation);
  declare_chat_template_option(app, chat.model);
  declare_model_options(app, chat.model);
  CLI::Option* const in_browser =
      app.add_flag("--web", options->in_browser, "chat in the browser: same as `zinc serve MODEL --open`");
  for (CLI::Option* other : app.get_options()) {  // the web UI has its own settings
    if (other != in_browser && !other->get_positional() && other != app.get_help_ptr()) in_browser->excludes(other);
  }
  check_usage(app, [options] { return options->chat.sampling.check(); });
  return [options, &app] {
    options->parsed = parsed_settings(app);
    options->has_system = app.count("--system") > 0;
    return run(*options);
  };
}

}  // namespace

extern const Command k_command_chat = {.path = "chat", .summary = "chat with a model", .declare = declare};

}  // namespace zinc::command_chat

zinc::Status zinc::start_chat(const NewChat& chat) {
  command_chat::Options options;
  options.chat = chat.options;
  options.system = chat.system;
  options.has_system = !chat.system.empty();
  options.no_history = chat.no_history;
  return command_chat::run(options);
}
