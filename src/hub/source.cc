#include "hub/source.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "base/sanitize_for_terminal.h"
#include "base/utf8.h"

namespace zinc {
namespace {

constexpr std::string_view kGguf = ".gguf";
constexpr size_t kMaxNameBytes = 200;

struct Prefix {
  std::string_view text;
  SourceKind kind;
};
constexpr std::array kPrefixes = {Prefix{"hf:", SourceKind::hugging_face}, Prefix{"https://", SourceKind::url},
                                  Prefix{"http://", SourceKind::url}, Prefix{"pip:", SourceKind::package},
                                  Prefix{"ollama:", SourceKind::ollama}};
// The addresses of Hugging Face's web pages; Ollama takes the first.
constexpr std::array<std::string_view, 4> kHubAddresses = {"hf.co/", "huggingface.co/", "https://hf.co/",
                                                           "https://huggingface.co/"};

// "ORG/REPO[:FILE]" of "https://huggingface.co/ORG/REPO[:FILE]"; empty: `text` is not the address of a repository. An
// address below a repository, such as that of a file, is a URL.
std::string_view repo_at_address(std::string_view text) {
  for (const std::string_view address : kHubAddresses) {
    if (!text.starts_with(address)) continue;
    text.remove_prefix(address.size());
    if (text.ends_with('/')) text.remove_suffix(1);
    const std::string_view repo = text.substr(0, text.find(':'));
    return std::ranges::count(repo, '/') == 1 && !repo.ends_with(kGguf) ? text : std::string_view();
  }
  return {};
}

const Prefix* prefix_of(std::string_view text) {
  const auto found = std::ranges::find_if(kPrefixes, [&](const Prefix& p) { return text.starts_with(p.text); });
  return found == kPrefixes.end() ? nullptr : &*found;
}

bool is_word(std::string_view text, std::string_view other_characters) {
  return !text.empty() && text.size() <= kMaxNameBytes && std::ranges::all_of(text, [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           other_characters.find(c) != std::string_view::npos;
  });
}

// A path in a repository: segments that are names, none of them "." or "..".
bool is_repo_path(std::string_view path) {
  while (!path.empty()) {
    const size_t slash = path.find('/');
    if (!is_plain_file_name(path.substr(0, slash))) return false;
    if (slash == std::string_view::npos) return true;
    path.remove_prefix(slash + 1);
  }
  return false;
}

Error invalid_source(std::string_view text, const char* expected) {
  return fail(ErrorCode::invalid_input, "'{}' is not a valid model source; expected {}", sanitize_for_terminal(text),
              expected);
}

Result<Source> parse_hugging_face(Source source, std::string_view rest) {
  constexpr const char* kExpected = "hf:ORG/REPO, hf:ORG/REPO:FILE.gguf or hf:ORG/REPO:Q4_K_M";
  const size_t colon = rest.find(':');
  std::string_view repo = rest.substr(0, colon);
  if (const size_t at = repo.find('@'); at != std::string_view::npos) {
    source.revision = repo.substr(at + 1);
    repo = repo.substr(0, at);
    if (!is_word(source.revision, "._-/") || source.revision.find("..") != std::string::npos) {
      return invalid_source(source.text, kExpected);
    }
  }
  if (colon != std::string_view::npos) {
    source.file = rest.substr(colon + 1);
    if (!is_repo_path(source.file)) return invalid_source(source.text, kExpected);
  }
  const size_t slash = repo.find('/');
  const bool is_repo = slash != std::string_view::npos && is_word(repo.substr(0, slash), "._-") &&
                       is_word(repo.substr(slash + 1), "._-") && repo.find("..") == std::string_view::npos;
  if (!is_repo) return invalid_source(source.text, kExpected);
  source.name = repo;
  return source;
}

Result<Source> parse_package(Source source, std::string_view rest) {
  const size_t equals = rest.find("==");
  source.name = rest.substr(0, equals);
  if (equals != std::string_view::npos) source.revision = rest.substr(equals + 2);
  const bool is_right = is_word(source.name, "._-") && source.name.front() != '-' &&
                        (equals == std::string_view::npos || is_word(source.revision, ".+!_-"));
  return is_right ? Result<Source>(std::move(source))
                  : invalid_source(source.text, "pip:PACKAGE or pip:PACKAGE==VERSION");
}

Result<Source> parse_ollama(Source source, std::string_view rest) {
  const size_t slash = rest.rfind('/');
  const size_t colon = rest.find(':', slash == std::string_view::npos ? 0 : slash);
  source.name = rest.substr(0, colon);
  source.file = colon == std::string_view::npos ? "latest" : std::string(rest.substr(colon + 1));
  // A colon before a slash separates a host from its port.
  const size_t port = source.name.find(':');
  const std::string digits =
      port == std::string::npos ? "0" : source.name.substr(port + 1, source.name.find('/') - port - 1);
  const bool is_port = is_word(digits, "") && digits.find_first_not_of("0123456789") == std::string::npos;
  const bool is_right = is_port && is_repo_path(source.name) && is_plain_file_name(source.file);
  return is_right ? Result<Source>(std::move(source)) : invalid_source(source.text, "ollama:NAME or ollama:NAME:TAG");
}

}  // namespace

bool has_source_prefix(std::string_view text) { return prefix_of(text) || !repo_at_address(text).empty(); }

bool is_repo_name(std::string_view text) {
  const bool is_path = text.starts_with('.') || text.ends_with(kGguf) || std::ranges::count(text, '/') != 1;
  return !is_path && parse_source(fmt::format("hf:{}", text)).ok();
}

Result<Source> parse_source(std::string_view text) {
  if (const std::string_view repo = repo_at_address(text); !repo.empty()) {
    return parse_hugging_face({SourceKind::hugging_face, fmt::format("hf:{}", repo), {}, {}, {}}, repo);
  }
  const Prefix* prefix = prefix_of(text);
  Source source{prefix->kind, std::string(text), {}, {}, {}};
  const std::string_view rest = text.substr(prefix->text.size());
  if (prefix->kind == SourceKind::hugging_face) return parse_hugging_face(std::move(source), rest);
  if (prefix->kind == SourceKind::package) return parse_package(std::move(source), rest);
  if (prefix->kind == SourceKind::ollama) return parse_ollama(std::move(source), rest);
  source.name = text;
  source.text = public_url(text);
  const std::string_view path = text.substr(0, text.find_first_of("?#"));
  const size_t slash = path.rfind('/');
  source.file = path.substr(slash + 1);
  const bool is_right = slash >= prefix->text.size() && is_plain_file_name(source.file) && source.file.ends_with(kGguf);
  return is_right ? Result<Source>(std::move(source))
                  : invalid_source(source.text, "a URL that ends in the name of a .gguf file, or hf:ORG/REPO");
}

std::string public_url(std::string_view url) {
  std::string out(url.substr(0, url.find_first_of("?#")));
  const size_t scheme = out.find("://");
  if (scheme == std::string::npos) return out;
  const size_t host = scheme + 3, path = std::min(out.find('/', host), out.size());
  const size_t at = out.rfind('@', path - 1);
  if (at != std::string::npos && at >= host) out.erase(host, at + 1 - host);
  return out;
}

std::string SplitName::file(int n) const { return fmt::format("{}-{:05}-of-{:05}.gguf", stem, n, count); }

std::optional<SplitName> parse_split_name(std::string_view file) {
  constexpr size_t kSuffix = std::string_view("-00001-of-00002.gguf").size();
  if (file.size() <= kSuffix || !file.ends_with(kGguf)) return std::nullopt;
  const std::string_view suffix = file.substr(file.size() - kSuffix);
  SplitName split{std::string(file.substr(0, file.size() - kSuffix)), 0, 0};
  const auto number = [](std::string_view digits, int& out) {
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), out);
    return error == std::errc() && end == digits.data() + digits.size();
  };
  const bool is_split = suffix[0] == '-' && number(suffix.substr(1, 5), split.number) &&
                        suffix.substr(6, 4) == "-of-" && number(suffix.substr(10, 5), split.count);
  if (!is_split || split.number < 1 || split.number > split.count) return std::nullopt;
  return split;
}

std::string model_id_of(std::string_view file_name) {
  if (const auto split = parse_split_name(file_name)) return model_id_of(split->stem + std::string(kGguf));
  if (file_name.ends_with(kGguf)) file_name.remove_suffix(kGguf.size());
  std::string id;
  for (const char c : file_name.substr(0, kMaxNameBytes - kMaxIdSuffix)) {
    const bool is_upper = c >= 'A' && c <= 'Z';
    const bool is_kept = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
    id += is_upper ? static_cast<char>(c + 32) : is_kept ? c : '-';
  }
  while (id.starts_with('.') || id.starts_with('-')) id.erase(0, 1);
  return id.empty() ? "model" : id;
}

bool is_plain_file_name(std::string_view name) {
  if (name.empty() || name.size() > kMaxNameBytes || name.front() == '.' || !is_valid_utf8(name)) return false;
  while (!name.empty()) {
    const Utf8Char character = next_utf8(name);
    if (is_control(character.code) || character.code == '/' || character.code == '\\') return false;
    name.remove_prefix(static_cast<size_t>(character.n_bytes));
  }
  return true;
}

}  // namespace zinc
