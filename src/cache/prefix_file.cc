// The prefix tree on disk. Little-endian: header, records, pages of each group, states, SHA-256 of all that. In records
// pages and slots are numbered as they lie in the file.
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

// Numbers front to back; past the end everything is 0 and ok() is false.
class Numbers {
 public:
  explicit Numbers(std::span<const std::byte> bytes) : bytes_(bytes) {}
  template <class T>
  T next() {
    T number{};
    const std::span<const std::byte> bytes = take(sizeof(T));
    if (!bytes.empty()) std::memcpy(&number, bytes.data(), sizeof(T));
    return number;
  }
  std::span<const std::byte> take(size_t n) {
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

// What a file holds, checked.
struct Contents {
  std::vector<PrefixRecord> records;              // pages and states by their number in the file
  std::vector<std::span<const std::byte>> pages;  // per group, one after the other
  std::span<const std::byte> states;
};

struct Sizes {
  std::vector<int> windows;
  std::vector<size_t> page_bytes;
  size_t state_bytes = 0;
};

Error damaged(std::string_view name, std::string_view what) {
  return fail(ErrorCode::invalid_input, "{}: {}; remove it to begin with an empty cache", name, what);
}

bool is_sound(const PrefixRecord& record, size_t index, std::span<const int> ends, const Sizes& sizes) {
  if (record.parent < -1 || record.parent >= static_cast<int>(index)) return false;
  if (record.parent >= 0 && record.owner != kEverybody) return false;  // the first of its parents says whose it is
  const int begin = record.parent < 0 ? 0 : ends[static_cast<size_t>(record.parent)];
  if (begin > (1 << 30)) return false;
  for (size_t g = 0; g < sizes.windows.size(); ++g) {
    if (sizes.windows[g] == 0 && record.pages[g] == kNoPage) return false;  // every continuation needs it
  }
  return begin % kPageTokens + static_cast<int>(record.tokens.size()) <= kPageTokens;
}

Result<Contents> parse(std::string_view name, Numbers in, const Sizes& sizes) {
  const size_t n_groups = sizes.windows.size();
  const uint32_t n_records = in.next<uint32_t>(), n_states = in.next<uint32_t>();
  std::vector<uint32_t> n_pages(n_groups);
  for (uint32_t& n : n_pages) n = in.next<uint32_t>();
  if (n_records > in.n_left()) return damaged(name, "it says that it has more records than bytes");
  Contents contents;
  std::vector<int> ends;
  std::set<std::tuple<int, CacheOwner, TokenId>> beginnings;
  std::set<int> states;
  for (size_t i = 0; i < n_records; ++i) {
    PrefixRecord record{.parent = in.next<int32_t>(),
                        .owner = in.next<CacheOwner>(),
                        .tokens = {},
                        .pages = {},
                        .state = in.next<int32_t>()};
    const uint32_t n_tokens = in.next<uint32_t>();
    if (n_tokens == 0 || n_tokens > kPageTokens) return damaged(name, "a run of tokens does not fit a page");
    for (uint32_t t = 0; t < n_tokens; ++t) record.tokens.push_back(in.next<TokenId>());
    bool is_known = record.state >= kNoSlot && record.state < static_cast<int64_t>(n_states);
    for (size_t g = 0; g < n_groups; ++g) {
      record.pages.push_back(in.next<PageId>());
      is_known = is_known && record.pages[g] >= kNoPage && record.pages[g] < static_cast<int64_t>(n_pages[g]);
    }
    if (!in.ok() || !is_known || !is_sound(record, i, ends, sizes)) return damaged(name, "a record makes no sense");
    const bool is_new = beginnings.emplace(record.parent, record.owner, record.tokens[0]).second &&
                        (record.state == kNoSlot || states.insert(record.state).second);
    if (!is_new) return damaged(name, "two records say the same");
    const int begin = record.parent < 0 ? 0 : ends[static_cast<size_t>(record.parent)];
    ends.push_back(begin + static_cast<int>(n_tokens));
    contents.records.push_back(std::move(record));
  }
  for (size_t g = 0; g < n_groups; ++g) contents.pages.push_back(in.take(n_pages[g] * sizes.page_bytes[g]));
  contents.states = in.take(n_states * sizes.state_bytes);
  if (!in.ok() || in.n_left() > 0) return damaged(name, "its length is not what it says");
  return contents;
}

}  // namespace

Status KvCache::save(const std::filesystem::path& path, const Sha256::Digest& key) {
  ZINC_TRY(created, AtomicFile::create(path, FileReaders::owner_only));  // it holds what people have said
  HashedFile file(std::move(created));
  const std::vector<PrefixRecord> records = tree_->records();
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
    file.put(record.owner);
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
    return damaged(name, "is no saved cache");
  }
  if (std::memcmp(all.data() + sizeof kMagic, key.data(), sizeof key) != 0) {
    return fail(ErrorCode::unsupported, "{}: was saved by another version, or for another model, backend or format",
                name);
  }
  const std::span<const std::byte> body = all.first(all.size() - sizeof key);
  Sha256 hash;
  hash.update(body);
  const Sha256::Digest digest = hash.finish();
  if (std::memcmp(digest.data(), all.data() + body.size(), sizeof digest) != 0) {
    return damaged(name, "its checksum does not match");
  }
  Sizes sizes{.windows = windows_, .page_bytes = {}, .state_bytes = memory_->state_bytes()};
  for (size_t g = 0; g < windows_.size(); ++g) sizes.page_bytes.push_back(memory_->page_bytes(static_cast<int>(g)));
  ZINC_TRY(contents, parse(name, Numbers(body.subspan(sizeof kMagic + sizeof key)), sizes));
  return take_back(std::move(contents.records), contents.pages, contents.states);
}

// A record finds its place if its parent has one and there is room for the page that all continuations need; windows
// and states are left out where there is none.
Status KvCache::take_back(std::vector<PrefixRecord> records, std::span<const std::span<const std::byte>> pages,
                          std::span<const std::byte> states) {
  std::vector<std::map<PageId, PageId>> taken(windows_.size());  // in the file -> in the cache
  std::vector<int> slots;
  std::vector<int> new_index(records.size(), -1);
  std::vector<PrefixRecord> kept;
  Status status = ok_status();
  const auto place_of = [&](size_t g, PageId number) {
    const auto [place, is_new] = taken[g].emplace(number, kNoPage);
    if (!is_new) return place->second;
    if (pools_.pages[g].n_free() == 0) return kNoPage;
    place->second = pools_.pages[g].take();
    const size_t n = memory_->page_bytes(static_cast<int>(g));
    Status written =
        memory_->write_page(static_cast<int>(g), place->second, pages[g].subspan(static_cast<size_t>(number) * n, n));
    if (!written.ok()) status = written;
    return place->second;
  };
  for (size_t i = 0; i < records.size() && status.ok(); ++i) {
    PrefixRecord& record = records[i];
    if (record.parent >= 0) {
      record.parent = new_index[static_cast<size_t>(record.parent)];
      if (record.parent < 0) continue;
    }
    bool has_place = true;
    for (size_t g = 0; g < windows_.size() && has_place; ++g) {
      if (record.pages[g] != kNoPage) record.pages[g] = place_of(g, record.pages[g]);
      has_place = windows_[g] > 0 || record.pages[g] != kNoPage;
    }
    if (!has_place) continue;
    if (record.state != kNoSlot) {
      const size_t n = memory_->state_bytes(), at = static_cast<size_t>(record.state) * n;
      record.state = pools_.states.n_free() > 0 ? pools_.states.take() : kNoSlot;
      if (record.state != kNoSlot) {
        slots.push_back(record.state);
        Status written = memory_->write_state(record.state, states.subspan(at, n));
        if (!written.ok()) status = written;
      }
    }
    new_index[i] = static_cast<int>(kept.size());
    kept.push_back(std::move(record));
  }
  if (status.ok()) tree_->restore(kept);
  for (size_t g = 0; g < windows_.size(); ++g) {
    for (const auto& [number, page] : taken[g]) {
      if (page != kNoPage) pools_.pages[g].unpin(page);
    }
  }
  for (const int slot : slots) pools_.states.unpin(slot);
  return status;
}

}  // namespace zinc
