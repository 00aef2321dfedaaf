// Terminal capabilities and user preferences, from the environment.
#pragma once

namespace zinc {

int terminal_width(int stream);  // columns; 0: not a terminal, or unknown
bool is_dumb_terminal();         // no cursor control: TERM is "dumb" or not set
bool shows_colors(int stream);   // a capable terminal, or FORCE_COLOR; never with NO_COLOR

}  // namespace zinc
