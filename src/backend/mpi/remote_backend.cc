#include "backend/mpi/remote_backend.h"

#include <algorithm>
#include <array>
#include <map>

#include "base/check.h"

namespace zinc::mpi {
namespace {

// An object on the worker, which is destroyed with this one.
class RemoteObject {
 public:
  RemoteObject(RemoteRank& rank, ObjectId id) : rank_(rank), id_(id) {}
  RemoteObject(const RemoteObject&) = delete;
  RemoteObject& operator=(const RemoteObject&) = delete;
  ~RemoteObject() { rank_.send(Call::destroy, id_); }
  RemoteRank& rank() const { return rank_; }
  ObjectId id() const { return id_; }

 private:
  RemoteRank& rank_;
  ObjectId id_;
};

class RemoteWeights final : public DeviceWeights {
 public:
  RemoteWeights(RemoteRank& rank, ObjectId id, BlobReader sizes)
      : object_(rank, id), device_bytes_(sizes.get<size_t>()), upload_bytes_(sizes.get<size_t>()) {}
  size_t device_bytes() const override { return device_bytes_; }
  size_t upload_bytes() const override { return upload_bytes_; }
  ObjectId id() const { return object_.id(); }

 private:
  RemoteObject object_;
  size_t device_bytes_, upload_bytes_;
};

class RemoteCache final : public CacheMemory {
 public:
  RemoteCache(RemoteRank& rank, ObjectId id, BlobReader sizes)
      : object_(rank, id),
        device_bytes_(sizes.get<size_t>()),
        state_bytes_(sizes.get<size_t>()),
        page_bytes_(sizes.get_all<size_t>()) {}
  ObjectId id() const { return object_.id(); }
  size_t device_bytes() const override { return device_bytes_; }
  size_t page_bytes(int group) const override { return page_bytes_[static_cast<size_t>(group)]; }
  size_t state_bytes() const override { return state_bytes_; }
  void copy_page(int group, PageId from, PageId to) override { send(Call::copy_page, group, from, to); }
  void copy_state(int from_slot, int to_slot) override { send(Call::copy_state, from_slot, to_slot); }
  void prefault_pages(int group, PageId first, int n_pages) override {
    send(Call::prefault_pages, group, first, n_pages);
  }
  Status read_page(int group, PageId page, std::span<std::byte> out) override {
    return copied(call(Call::read_page, {}, group, page), out);
  }
  Status write_page(int group, PageId page, std::span<const std::byte> in) override {
    return status_of(call(Call::write_page, in, group, page));
  }
  Status read_state(int slot, std::span<std::byte> out) override {
    return copied(call(Call::read_state, {}, slot), out);
  }
  Status write_state(int slot, std::span<const std::byte> in) override {
    return status_of(call(Call::write_state, in, slot));
  }

 private:
  template <class... Numbers>
  void send(Call call, Numbers... numbers) {
    BlobWriter arguments;
    (arguments.put(int32_t{numbers}), ...);
    object_.rank().send(call, id(), std::move(arguments));
  }
  template <class... Numbers>
  Result<Message> call(Call call, std::span<const std::byte> bytes, Numbers... numbers) {
    BlobWriter arguments;
    (arguments.put(int32_t{numbers}), ...);
    arguments.put_all(bytes);
    return object_.rank().call(call, id(), std::move(arguments));
  }
  static Status status_of(const Result<Message>& reply) { return reply.ok() ? ok_status() : reply.error(); }
  static Status copied(const Result<Message>& reply, std::span<std::byte> out) {
    if (!reply.ok()) return reply.error();
    const std::vector<std::byte> bytes = BlobReader(reply.value()).get_all<std::byte>();
    ZINC_CHECK(bytes.size() == out.size());
    std::ranges::copy(bytes, out.begin());
    return ok_status();
  }

  RemoteObject object_;
  size_t device_bytes_, state_bytes_;
  std::vector<size_t> page_bytes_;
};

// A step is one request and one reply. The worker runs a step when the one before it has ended.
class RemotePlan final : public Plan {
 public:
  RemotePlan(RemoteRank& rank, ObjectId id, BlobReader sizes) : object_(rank, id), device_bytes_(sizes.get<size_t>()) {}
  ObjectId id() const { return object_.id(); }
  size_t device_bytes() const override { return device_bytes_; }

  void start(const StepInputs& inputs) override {
    ZINC_CHECK(n_started_ - n_waited_ < requests_.size());
    BlobWriter arguments;
    write_step(inputs, arguments);
    requests_[n_started_++ % requests_.size()] = object_.rank().send(Call::run_step, id(), std::move(arguments));
  }

  Result<StepOutput> wait() override {
    ZINC_CHECK(n_waited_ < n_started_);
    const size_t i = n_waited_++ % requests_.size();
    ZINC_TRY(message, object_.rank().reply(requests_[i]));
    BlobReader in(message);
    outputs_[i].read(in);
    return StepOutput{outputs_[i].sampled, outputs_[i].logits, outputs_[i].hidden};
  }

  std::span<const float> value(Value v) const override {
    std::vector<float>& value = values_[v.id];
    BlobWriter arguments;
    arguments.put(v);
    const Result<Message> reply = object_.rank().call(Call::read_value, id(), std::move(arguments));
    if (reply.ok()) BlobReader(reply.value()).get_all(value);
    return value;
  }

  Status wait_until_prepared() override {
    const Result<Message> reply = object_.rank().call(Call::wait_until_prepared, id());
    return reply.ok() ? ok_status() : reply.error();
  }

 private:
  RemoteObject object_;
  size_t device_bytes_;
  std::array<uint64_t, 2> requests_ = {};  // of step k: k % 2
  std::array<ReceivedOutput, 2> outputs_;
  size_t n_started_ = 0, n_waited_ = 0;
  mutable std::map<int32_t, std::vector<float>> values_;
};

class RemoteBackend final : public Backend {
 public:
  RemoteBackend(RemoteRank& rank, ObjectId id, DeviceInfo info) : object_(rank, id), info_(std::move(info)) {}

  DeviceInfo info() const override { return info_; }

  DevicePeaks measure_peaks() override {
    const Result<Message> reply = object_.rank().call(Call::measure_peaks, object_.id());
    if (!reply.ok()) return {};
    BlobReader in(reply.value());
    DevicePeaks peaks;
    peaks.read_bytes_per_s = in.get<double>();
    peaks.flops_per_s = in.get<double>();
    peaks.arithmetic = in.get<bool>() ? "int8" : "f32";
    return peaks;
  }

  double clock_mhz() override {
    const Result<Message> reply = object_.rank().call(Call::clock_mhz, object_.id());
    return reply.ok() ? BlobReader(reply.value()).get<double>() : 0;
  }

  // The worker releases the pages of its own file.
  Result<std::unique_ptr<DeviceWeights>> upload(std::span<const Graph* const> graphs,
                                                const ReleaseFilePages&) override {
    BlobWriter arguments;
    arguments.put(uint32_t(graphs.size()));
    for (const Graph* graph : graphs) {
      if (Status written = write(*graph, arguments); !written.ok()) return written.error();
    }
    return create<RemoteWeights, DeviceWeights>(Call::upload, std::move(arguments));
  }

  Result<std::unique_ptr<CacheMemory>> allocate_cache(std::span<const LayerCache> layers,
                                                      const CacheSizes& sizes) override {
    BlobWriter arguments;
    arguments.put_all(layers);
    arguments.put_all(std::span<const int>(sizes.n_pages));
    arguments.put(sizes.max_length);
    arguments.put(sizes.n_slots);
    arguments.put_text(sizes.kv_format->name);
    return create<RemoteCache, CacheMemory>(Call::allocate_cache, std::move(arguments));
  }

  Result<std::unique_ptr<Plan>> compile(const Graph& graph, DeviceWeights& weights, CacheMemory& cache,
                                        const Bucket& bucket) override {
    BlobWriter arguments;
    arguments.put(static_cast<RemoteWeights&>(weights).id());
    arguments.put(static_cast<RemoteCache&>(cache).id());
    Bucket own = bucket;
    own.shares_memory_with = nullptr;
    own.time_kernels = false;  // times of another host's clock
    arguments.put(own);
    const Plan* shared = bucket.shares_memory_with;
    arguments.put(shared ? static_cast<const RemotePlan*>(shared)->id() : ObjectId{0});
    if (Status written = write(graph, arguments); !written.ok()) return written.error();
    return create<RemotePlan, Plan>(Call::compile, std::move(arguments));
  }

  std::unique_ptr<Backend> without_memory() override {
    RemoteRank& rank = object_.rank();
    BlobWriter arguments;
    const ObjectId id = rank.new_id();
    arguments.put(id);
    rank.send(Call::without_memory, object_.id(), std::move(arguments));
    return std::make_unique<RemoteBackend>(rank, id, info_);
  }

 private:
  Status write(const Graph& graph, BlobWriter& out) const {
    return write_graph(
        graph, [this](const TensorView& weight) { return object_.rank().locate(weight); }, out);
  }

  // Calls with the id of the new object first.
  template <class T, class Base>
  Result<std::unique_ptr<Base>> create(Call call, BlobWriter&& arguments) {
    RemoteRank& rank = object_.rank();
    const ObjectId id = rank.new_id();
    BlobWriter with_id;
    with_id.put(id);
    with_id.append(arguments);
    ZINC_TRY(reply, rank.call(call, object_.id(), std::move(with_id)));
    return std::unique_ptr<Base>(std::make_unique<T>(rank, id, BlobReader(reply)));
  }

  RemoteObject object_;
  DeviceInfo info_;
};

}  // namespace

std::string device_of_rank(std::string_view name, int local_rank, int n_local_ranks) {
  std::string device(name.empty() ? default_backend().name : name);
  const Result<const BackendInfo*> backend = find_backend(device);
  const bool is_gpu = backend.ok() && backend.value()->devices != nullptr;
  if (is_gpu && n_local_ranks > 1 && device.find(':') == std::string::npos) device += fmt::format(":{}", local_rank);
  return device;
}

Result<RemoteDevice> open_remote_device(RemoteRank& rank, std::string_view name, int n_threads) {
  const World& world = rank.world();
  const ObjectId id = rank.new_id();
  BlobWriter arguments;
  arguments.put_text(name);
  arguments.put(n_threads);
  arguments.put(world.local_rank(rank.rank()));
  arguments.put(world.n_local_ranks(rank.rank()));
  const Result<Message> reply = rank.call(Call::open_device, id, std::move(arguments));
  if (!reply.ok()) {
    return fail(reply.error().code, "{}: {}", world.name_of(rank.rank()), reply.error().message);
  }
  BlobReader in(reply.value());
  RemoteDevice device;
  device.name = in.get_text();
  device.available_bytes = in.get<size_t>();
  DeviceInfo info;
  info.name = fmt::format("{}: {}", world.host(rank.rank()).name, in.get_text());
  info.memory_bytes = in.get<size_t>();
  info.free_bytes = in.get<size_t>();
  info.has_dedicated_memory = in.get<bool>();
  info.driver = in.get_text();
  info.features = in.get_text();
  device.backend = std::make_unique<RemoteBackend>(rank, id, std::move(info));
  return device;
}

}  // namespace zinc::mpi
