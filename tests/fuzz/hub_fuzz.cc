// Fuzzes the parsers of the hub: journals, zip files, index pages, file listings, headers, names. The first byte
// selects the parser.
#include <cstdint>
#include <string_view>

#include "base/nearest_name.h"
#include "hub/hugging_face.h"
#include "hub/journal.h"
#include "hub/package.h"
#include "hub/remote_file.h"
#include "hub/zip_file.h"

using namespace zinc;

namespace {

void read_zip(std::string_view text) {
  const auto zip = std::as_bytes(std::span(text));
  const Result<std::vector<ZipMember>> members = list_zip(zip);
  if (!members.ok()) return;
  for (const ZipMember& member : members.value()) {
    uint64_t n_bytes = 0;
    const Status done = unpack_member(zip, member, [&](std::span<const std::byte> bytes) {
      n_bytes += bytes.size();
      return ok_status();
    });
    ZINC_CHECK(n_bytes <= member.n_bytes);
    ZINC_CHECK(!done.ok() || n_bytes == member.n_bytes);
  }
}

void read_names(std::string_view text) {
  if (has_source_prefix(text)) static_cast<void>(parse_source(text).ok());
  static_cast<void>(parse_split_name(text));
  ZINC_CHECK(is_plain_file_name(model_id_of(text)));
  static_cast<void>(display_url(text));
  const std::string names[] = {"qwen3-8b", "gemma-4-e4b-it"};
  static_cast<void>(nearest_name(text, names));
}

void read_headers(std::string_view text) {
  ResponseHead head;
  while (!text.empty()) {
    const size_t end = std::min(text.size(), text.find('\n'));
    head.parse_line(text.substr(0, end));
    text.remove_prefix(std::min(text.size(), end + 1));
  }
  if (head.content_range) ZINC_CHECK(head.content_range->first <= head.content_range->end);
  static_cast<void>(retry_after_s(head.retry_after, 0));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 6) {
    case 0:
      static_cast<void>(parse_journal(text));
      break;
    case 1:
      read_zip(text);
      break;
    case 2:
      static_cast<void>(parse_index_page(text, "https://index.example/simple/p/"));
      break;
    case 3: {
      const Result<std::vector<RepoFile>> files = parse_repo_listing(text);
      if (files.ok()) static_cast<void>(choose_model_files("org/repo", files.value(), "Q4_K_M").ok());
      break;
    }
    case 4:
      read_names(text);
      break;
    case 5:
      read_headers(text);
      break;
  }
  return 0;
}
