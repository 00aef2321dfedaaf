// The prefix cache file. Little-endian: header, records, pages of each group, states, SHA-256 of everything before it.
// Records refer to pages and slots by their index in the file.
#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <tuple>

#include "base/atomic_file.h"
#include "base/mapped_file.h"
#include "cache/kv_cache.h"

namespace zinc {
namespace {

constexpr char kMagic[8] = {'z', 'i', 'n', 'c', 't', 'r', 'e', '2'};

// Writes and hashes.
class HashedFile {
 public:
  explicit HashedFile(AtomicFile file) : file_(std::move(file)) {}
  Status write(std::span<const std::byte> bytes) {
    hash_.update(bytes);
    return file_.write(bytes);
  }
  template <class T>
  void put(const T& number) {
    const std::span<const std::byte> bytes = std::as_bytes(std::span(&number, 1));
    pending_.insert(pending_.end(), bytes.begin(), bytes.end());
  }
  Status flush() {
    const std::vector<std::byte> bytes = std::exchange(pending_, {});
    return write(bytes);
  }
  Status commit() {
    const Sha256::Digest digest = hash_.finish();
    if (Status written = file_.write(std::as_bytes(std::span(digest))); !written.ok()) return written;
    return file_.commit();
  }

 private:
  AtomicFile file_;
  Sha256 hash_;
  std::vector<std::byte> pending_;
};

// Reads values in order; past the end every value is 0 and ok() is false.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}
  template <class T>
  T next() {
    T number{};
    const std::span<const std::byte> bytes = read(sizeof(T));
    if (!bytes.empty()) std::memcpy(&number, bytes.data(), sizeof(T));
    return number;
  }
  std::span<const std::byte> read(size_t n) {
    ok_ = ok_ && n <= bytes_.size();
    if (!ok_) return {};
    const std::span<const std::byte> head = bytes_.first(n);
    bytes_ = bytes_.subspan(n);
    return head;
  }
  bool ok() const { return ok_; }
  size_t n_left() const { return bytes_.size(); }

 private:
  std::span<const std::byte> bytes_;
  bool ok_ = true;
};

// Validated contents of a file.
struct Contents {
  std::vector<PrefixRecord> records;              // pages and states by their index in the file
  std::vector<std::span<const std::byte>> pages;  // per group, consecutive
  std::span<const std::byte> states;
};

struct Sizes {
  std::vector<int> windows;
  std::vector<size_t> page_bytes;
  size_t state_bytes = 0;
};

Error corrupt_file(std::string_view name, std::string_view what) {
  return fail(ErrorCode::invalid_input, "{}: {}; remove the file to start with an empty cache", name, what);
}

bool is_valid(const PrefixRecord& record, size_t index, std::span<const int> ends, const Sizes& sizes) {
  if (record.parent < -1 || record.parent >= static_cast<int>(index)) return false;
  if (record.parent >= 0 && record.cache_namespace != kSharedNamespace)
    return false;  // only a record without a parent names its namespace
  const int begin = record.parent < 0 ? 0 : ends[static_cast<size_t>(record.parent)];
  if (begin > (1 << 30)) return false;
  for (size_t g = 0; g < sizes.windows.size(); ++g) {
    if (sizes.windows[g] == 0 && record.pages[g] == kNoPage) return false;  // required to resume from any position
  }
  return begin % kPageTokens + static_cast<int>(record.tokens.size()) <= kPageTokens;
}

Result<Contents> parse(std::string_view name, ByteReader in, const Sizes& sizes) {
  const size_t n_groups = sizes.windows.size();
  const uint32_t n_records = in.next<uint32_t>(), n_states = in.next<uint32_t>();
  std::vector<uint32_t> n_pages(n_groups);
  for (uint32_t& n : n_pages) n = in.next<uint32_t>();
  if (n_records > in.n_left()) return corrupt_file(name, "corrupt header: more records than bytes");
  Contents contents;
  std::vector<int> ends;
  std::set<std::tuple<int, CacheNamespace, TokenId>> first_tokens;
  std::set<int> states;
  for (size_t i = 0; i < n_records; ++i) {
    PrefixRecord record{.parent = in.next<int32_t>(),
                        .cache_namespace = in.next<CacheNamespace>(),
                        .tokens = {},
                        .pages = {},
                        .state = in.next<int32_t>()};
    const uint32_t n_tokens = in.next<uint32_t>();
    if (n_tokens == 0 || n_tokens > kPageTokens)
      return corrupt_file(name, "corrupt record: its tokens do not fit in a page");
    for (uint32_t t = 0; t < n_tokens; ++t) record.tokens.push_back(in.next<TokenId>());
    bool is_in_range = record.state >= kNoSlot && record.state < static_cast<int64_t>(n_states);
    for (size_t g = 0; g < n_groups; ++g) {
      record.pages.push_back(in.next<PageId>());
      is_in_range = is_in_range && record.pages[g] >= kNoPage && record.pages[g] < static_cast<int64_t>(n_pages[g]);
    }
    if (!in.ok() || !is_in_range || !is_valid(record, i, ends, sizes)) return corrupt_file(name, "corrupt record");
    const bool is_new = first_tokens.emplace(record.parent, record.cache_namespace, record.tokens[0]).second &&
                        (record.state == kNoSlot || states.insert(record.state).second);
    if (!is_new) return corrupt_file(name, "duplicate record");
    const int begin = record.parent < 0 ? 0 : ends[static_cast<size_t>(record.parent)];
    ends.push_back(begin + static_cast<int>(n_tokens));
    contents.records.push_back(std::move(record));
  }
  for (size_t g = 0; g < n_groups; ++g) contents.pages.push_back(in.read(n_pages[g] * sizes.page_bytes[g]));
  contents.states = in.read(n_states * sizes.state_bytes);
  if (!in.ok() || in.n_left() > 0) return corrupt_file(name, "wrong length");
  return contents;
}

}  // namespace

Status KvCache::save(const std::filesystem::path& path, const Sha256::Digest& key) {
  ZINC_TRY(created, AtomicFile::create(path, FilePermissions::owner_only));  // it contains user text
  HashedFile file(std::move(created));
  const std::vector<PrefixRecord> records = prefix_cache_->records();
  const size_t n_groups = windows_.size();
  std::vector<std::map<PageId, PageId>> page_numbers(n_groups);  // in the cache -> in the file
  std::vector<std::vector<PageId>> pages(n_groups);
  std::vector<int> states;
  file.put(kMagic);
  file.put(key);
  file.put(static_cast<uint32_t>(records.size()));
  for (const PrefixRecord& record : records) {
    if (record.state != kNoSlot) states.push_back(record.state);
    for (size_t g = 0; g < n_groups; ++g) {
      const PageId page = record.pages[g];
      if (page == kNoPage) continue;
      const auto next = static_cast<PageId>(pages[g].size());
      if (page_numbers[g].emplace(page, next).second) pages[g].push_back(page);
    }
  }
  file.put(static_cast<uint32_t>(states.size()));
  for (const std::vector<PageId>& list : pages) file.put(static_cast<uint32_t>(list.size()));
  int n_states = 0;
  for (const PrefixRecord& record : records) {
    file.put(static_cast<int32_t>(record.parent));
    file.put(record.cache_namespace);
    file.put(static_cast<int32_t>(record.state == kNoSlot ? kNoSlot : n_states++));
    file.put(static_cast<uint32_t>(record.tokens.size()));
    for (const TokenId token : record.tokens) file.put(token);
    for (size_t g = 0; g < n_groups; ++g) {
      file.put(record.pages[g] == kNoPage ? kNoPage : page_numbers[g].at(record.pages[g]));
    }
  }
  if (Status written = file.flush(); !written.ok()) return written;
  std::vector<std::byte> bytes;
  for (size_t g = 0; g < n_groups; ++g) {
    bytes.resize(memory_->page_bytes(static_cast<int>(g)));
    for (const PageId page : pages[g]) {
      if (Status read = memory_->read_page(static_cast<int>(g), page, bytes); !read.ok()) return read;
      if (Status written = file.write(bytes); !written.ok()) return written;
    }
  }
  bytes.resize(memory_->state_bytes());
  for (const int slot : states) {
    if (Status read = memory_->read_state(slot, bytes); !read.ok()) return read;
    if (Status written = file.write(bytes); !written.ok()) return written;
  }
  return file.commit();
}

Status KvCache::load(const std::filesystem::path& path, const Sha256::Digest& key) {
  ZINC_TRY(file, MappedFile::open(path));
  return load(file.bytes(), path.string(), key);
}

Status KvCache::load(std::span<const std::byte> all, std::string_view name, const Sha256::Digest& key) {
  if (all.size() < sizeof kMagic + 2 * sizeof key || std::memcmp(all.data(), kMagic, sizeof kMagic) != 0) {
    return corrupt_file(name, "not a saved cache");
  }
  if (std::memcmp(all.data() + sizeof kMagic, key.data(), sizeof key) != 0) {
    return fail(ErrorCode::unsupported, "{}: saved by another version, or for another model, backend or cache format",
                name);
  }
  const std::span<const std::byte> body = all.first(all.size() - sizeof key);
  Sha256 hash;
  hash.update(body);
  const Sha256::Digest digest = hash.finish();
  if (std::memcmp(digest.data(), all.data() + body.size(), sizeof digest) != 0) {
    return corrupt_file(name, "checksum mismatch");
  }
  Sizes sizes{.windows = windows_, .page_bytes = {}, .state_bytes = memory_->state_bytes()};
  for (size_t g = 0; g < windows_.size(); ++g) sizes.page_bytes.push_back(memory_->page_bytes(static_cast<int>(g)));
  ZINC_TRY(contents, parse(name, ByteReader(body.subspan(sizeof kMagic + sizeof key)), sizes));
  return restore(std::move(contents.records), contents.pages, contents.states);
}

// A record is loaded if its parent was and its pages of unbounded groups fit; pages of windowed groups and states are
// dropped if they do not fit.
Status KvCache::restore(std::vector<PrefixRecord> records, std::span<const std::span<const std::byte>> pages,
                        std::span<const std::byte> states) {
  std::vector<std::map<PageId, PageId>> loaded_pages(windows_.size());  // in the file -> in the cache
  std::vector<int> slots;
  std::vector<int> new_index(records.size(), -1);
  std::vector<PrefixRecord> kept;
  Status status = ok_status();
  const auto page_for = [&](size_t g, PageId number) {
    const auto [entry, is_new] = loaded_pages[g].emplace(number, kNoPage);
    if (!is_new) return entry->second;
    if (pools_.pages[g].n_free() == 0) return kNoPage;
    entry->second = pools_.pages[g].allocate();
    const size_t n = memory_->page_bytes(static_cast<int>(g));
    Status written =
        memory_->write_page(static_cast<int>(g), entry->second, pages[g].subspan(static_cast<size_t>(number) * n, n));
    if (!written.ok()) status = written;
    return entry->second;
  };
  for (size_t i = 0; i < records.size() && status.ok(); ++i) {
    PrefixRecord& record = records[i];
    if (record.parent >= 0) {
      record.parent = new_index[static_cast<size_t>(record.parent)];
      if (record.parent < 0) continue;
    }
    bool has_pages = true;
    for (size_t g = 0; g < windows_.size() && has_pages; ++g) {
      if (record.pages[g] != kNoPage) record.pages[g] = page_for(g, record.pages[g]);
      has_pages = windows_[g] > 0 || record.pages[g] != kNoPage;
    }
    if (!has_pages) continue;
    if (record.state != kNoSlot) {
      const size_t n = memory_->state_bytes(), at = static_cast<size_t>(record.state) * n;
      record.state = pools_.states.n_free() > 0 ? pools_.states.allocate() : kNoSlot;
      if (record.state != kNoSlot) {
        slots.push_back(record.state);
        Status written = memory_->write_state(record.state, states.subspan(at, n));
        if (!written.ok()) status = written;
      }
    }
    new_index[i] = static_cast<int>(kept.size());
    kept.push_back(std::move(record));
  }
  if (status.ok()) prefix_cache_->restore(kept);
  for (size_t g = 0; g < windows_.size(); ++g) {
    for (const auto& [number, page] : loaded_pages[g]) {
      if (page != kNoPage) pools_.pages[g].unpin(page);
    }
  }
  for (const int slot : slots) pools_.states.unpin(slot);
  return status;
}

}  // namespace zinc
