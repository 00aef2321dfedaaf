#include "backend/mpi/remote_rank.h"

#include <filesystem>

#include "backend/mpi/backoff.h"
#include "base/file_fingerprint.h"

namespace zinc::mpi {

ObjectId RemoteRank::new_id() {
  const std::lock_guard lock(mutex_);
  return ++last_id_;
}

uint64_t RemoteRank::send(Call call, ObjectId object, BlobWriter&& arguments) {
  const std::lock_guard lock(mutex_);  // numbers ascend in the order of the messages
  const RequestHeader header{.call = call, .object = object, .number = ++last_number_};
  BlobWriter request;
  request.put(header);
  request.append(arguments);
  if (Status sent = world_.send(rank_, request.take()); !sent.ok()) replies_.emplace(header.number, sent.error());
  return header.number;
}

Result<Message> RemoteRank::reply(uint64_t number) {
  for (Backoff backoff;; backoff.pause()) {
    {
      const std::lock_guard lock(mutex_);
      while (const std::optional<Message> message = world_.try_receive(rank_)) {
        BlobReader in(*message);
        const ReplyHeader header = in.get<ReplyHeader>();
        if (header.has_failed) {
          replies_.emplace(header.number, Error{header.code, in.get_text()});
        } else {
          replies_.emplace(header.number, Message(in.rest().begin(), in.rest().end()));
        }
      }
      if (auto found = replies_.extract(number)) return std::move(found.mapped());
    }
    if (const std::optional<Error> why = world_.lost()) return *why;
  }
}

Result<Message> RemoteRank::call(Call call, ObjectId object, BlobWriter&& arguments) {
  return reply(send(call, object, std::move(arguments)));
}

void RemoteRank::add_file(ObjectId file, std::vector<std::span<const std::byte>> shards) {
  const std::lock_guard lock(mutex_);
  files_.emplace(file, std::move(shards));
}

void RemoteRank::remove_file(ObjectId file) {
  const std::lock_guard lock(mutex_);
  files_.erase(file);
}

Result<WeightLocation> RemoteRank::locate(const TensorView& weight) {
  const std::lock_guard lock(mutex_);
  for (const auto& [file, shards] : files_) {
    for (size_t s = 0; s < shards.size(); ++s) {
      const std::byte* const begin = shards[s].data();
      if (weight.bytes.data() < begin || weight.bytes.data() >= begin + shards[s].size()) continue;
      return WeightLocation{file, static_cast<uint32_t>(s), static_cast<uint64_t>(weight.bytes.data() - begin),
                            weight.bytes.size()};
    }
  }
  return fail(ErrorCode::unsupported, "a weight of the model is not in its file: it cannot run on another host");
}

std::span<const std::unique_ptr<RemoteRank>> remote_ranks(World& world) {
  static const std::vector<std::unique_ptr<RemoteRank>>& ranks = *[&] {
    auto* all = new std::vector<std::unique_ptr<RemoteRank>>;
    for (int r = 1; r < world.size(); ++r) all->push_back(std::make_unique<RemoteRank>(world, r));
    return all;
  }();
  return ranks;
}

Result<std::unique_ptr<RemoteFile>> RemoteFile::open(World& world, std::span<const std::string> paths,
                                                     const std::vector<std::span<const std::byte>>& shards) {
  ZINC_TRY(digest, fingerprint_of_files(paths));
  std::unique_ptr<RemoteFile> file(new RemoteFile(world));
  for (const auto& remote : remote_ranks(world)) {
    BlobWriter arguments;
    arguments.put(digest);
    arguments.put(uint32_t(paths.size()));
    for (const std::string& path : paths) arguments.put_text(std::filesystem::absolute(path).string());
    const ObjectId id = remote->new_id();
    if (const Result<Message> opened = remote->call(Call::open_file, id, std::move(arguments)); !opened.ok()) {
      const Error& error = opened.error();
      if (error.code == ErrorCode::device_lost) return error;
      return fail(error.code, "{}: {}; with --split-hosts every host has the same file at the same path",
                  world.name_of(remote->rank()), error.message);
    }
    remote->add_file(id, shards);
    file->ids_.push_back(id);
  }
  return file;
}

RemoteFile::~RemoteFile() {
  const auto ranks = remote_ranks(world_);
  for (size_t i = 0; i < ids_.size(); ++i) {
    ranks[i]->remove_file(ids_[i]);
    ranks[i]->send(Call::close_file, ids_[i]);
  }
}

}  // namespace zinc::mpi
