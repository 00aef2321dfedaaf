// Columns that a character takes on a terminal: 0 for combining marks, 2 for East Asian wide characters and emoji, else
// 1. Does not depend on the locale, unlike wcwidth(): zinc writes UTF-8 even if LANG is C.
#pragma once

#include <string_view>

namespace zinc {

int display_width(char32_t code);
int display_width(std::string_view text);  // of UTF-8 without control characters; SGR sequences take no columns

}  // namespace zinc
