// What the terminal can do and its user wants, from the environment.
#pragma once

namespace zinc {

bool is_dumb_terminal();         // it cannot move its cursor: TERM is "dumb" or not set
bool shows_colours(int stream);  // it is a terminal that can, or FORCE_COLOR is set; never with NO_COLOR

}  // namespace zinc
