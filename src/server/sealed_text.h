// Text in a form that clients pass back unread: the `encrypted_content` of reasoning items, so that reasoning survives
// where clients may not keep it. It is encoded, not encrypted: the client gets the reasoning anyway.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace zinc {

std::string seal_text(std::string_view text);
std::optional<std::string> unseal_text(std::string_view sealed);  // nullopt: not from seal_text()

}  // namespace zinc
