// The words of other programs (Ollama, llama.cpp): what zinc calls the same thing, or why it has no such thing.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace zinc {

// The answer to an option that zinc does not have, such as "-ngl"; empty: unknown. `command` is "run", "serve", or
// "zinc" if there is none.
std::string_view foreign_option(std::string_view command, std::string_view option);
// The answer to a command that zinc does not have, such as "create"; empty: unknown.
std::string_view foreign_command(std::string_view word);

// The first of the arguments whose letters the parser would misread: an option of another program, as it takes "-ngl
// 99" for "-n gl", or one of `long_options` (names without dashes) after one dash, as it takes "-temp 1" for "-t emp".
// Arguments after "--" and values of -p, --prompt, --system and --stop are not looked at.
std::optional<std::string> find_misread_option(std::span<const std::string> arguments,
                                               std::span<const std::string> long_options);

}  // namespace zinc
