#include "backend/mpi/worker.h"

#include <algorithm>
#include <map>

#include "backend/backend.h"
#include "backend/mpi/messages.h"
#include "backend/mpi/remote_backend.h"
#include "base/file_fingerprint.h"
#include "base/mapped_file.h"
#include "graph/graph_blob.h"

namespace zinc::mpi {
namespace {

using Files = std::map<ObjectId, std::vector<MappedFile>>;

struct UploadedWeights {
  std::vector<std::unique_ptr<Graph>> graphs;
  std::unique_ptr<DeviceWeights> weights;
};

struct CompiledPlan {
  std::unique_ptr<Graph> graph;
  std::unique_ptr<Plan> plan;
  ReceivedStep step;
};

class Worker {
 public:
  explicit Worker(World& world) : world_(world) {}

  Status run() {
    while (true) {
      ZINC_TRY(message, world_.receive(0));
      BlobReader in(message);
      const RequestHeader request = in.get<RequestHeader>();
      if (request.call == Call::leave) return ok_status();
      BlobWriter results;
      const Status status = run(request, in, results);
      if (!has_reply(request.call)) continue;
      BlobWriter reply;
      reply.put(ReplyHeader{.number = request.number,
                            .has_failed = !status.ok(),
                            .code = status.ok() ? ErrorCode::io : status.error().code});
      if (status.ok()) {
        reply.append(results);
      } else {
        reply.put_text(status.error().message);
      }
      if (Status sent = world_.send(0, reply.take()); !sent.ok()) return sent;
    }
  }

 private:
  static bool has_reply(Call call) {
    constexpr Call kWithout[] = {Call::close_file, Call::without_memory, Call::destroy,
                                 Call::copy_page,  Call::copy_state,     Call::prefault_pages};
    return std::ranges::find(kWithout, call) == std::end(kWithout);
  }

  Status run(const RequestHeader& request, BlobReader& in, BlobWriter& out) {
    const ObjectId id = request.object;
    switch (request.call) {
      case Call::leave:
        break;
      case Call::open_file:
        return open_file(id, in);
      case Call::close_file:
        files_.erase(id);
        break;
      case Call::open_device:
        return open_device(id, in, out);
      case Call::without_memory:
        backends_[in.get<ObjectId>()] = backends_.at(id)->without_memory();
        break;
      case Call::measure_peaks:
        return measure_peaks(*backends_.at(id), out);
      case Call::clock_mhz:
        out.put(backends_.at(id)->clock_mhz());
        break;
      case Call::upload:
        return upload(*backends_.at(id), in, out);
      case Call::allocate_cache:
        return allocate_cache(*backends_.at(id), in, out);
      case Call::compile:
        return compile(*backends_.at(id), in, out);
      case Call::destroy:
        plans_.erase(id);
        caches_.erase(id);
        weights_.erase(id);
        backends_.erase(id);
        break;
      case Call::run_step:
        return run_step(plans_.at(id), in, out);
      case Call::read_value:
        out.put_all(plans_.at(id).plan->value(in.get<Value>()));
        break;
      case Call::wait_until_prepared:
        return plans_.at(id).plan->wait_until_prepared();
      default:
        return run_on_cache(*caches_.at(id), request.call, in, out);
    }
    return ok_status();
  }

  Status open_file(ObjectId id, BlobReader& in) {
    const Sha256::Digest expected = in.get<Sha256::Digest>();
    std::vector<std::string> paths(in.get<uint32_t>());
    for (std::string& path : paths) path = in.get_text();
    ZINC_TRY(found, fingerprint_of_files(paths));
    if (found != expected) {
      return fail(ErrorCode::invalid_input, "{} is another file than that of {}", paths[0], world_.name_of(0));
    }
    std::vector<MappedFile> shards;
    for (const std::string& path : paths) {
      ZINC_TRY(shard, MappedFile::open(path));
      shards.push_back(std::move(shard));
    }
    files_.emplace(id, std::move(shards));
    return ok_status();
  }

  Status open_device(ObjectId id, BlobReader& in, BlobWriter& out) {
    const std::string wanted = in.get_text();
    const int n_threads = in.get<int>(), local_rank = in.get<int>(), n_local_ranks = in.get<int>();
    const std::string name = device_of_rank(wanted, local_rank, n_local_ranks);
    ZINC_TRY(backend, open_backend(name, n_threads));
    const DeviceInfo info = backend->info();
    out.put_text(name);
    out.put(available_bytes(info));
    out.put_text(info.name);
    out.put(info.memory_bytes);
    out.put(info.free_bytes);
    out.put(info.has_dedicated_memory);
    out.put_text(info.driver);
    out.put_text(info.features);
    backends_[id] = std::move(backend);
    return ok_status();
  }

  static Status measure_peaks(Backend& backend, BlobWriter& out) {
    const DevicePeaks peaks = backend.measure_peaks();
    out.put(peaks.read_bytes_per_s);
    out.put(peaks.flops_per_s);
    out.put(peaks.arithmetic == "int8");
    return ok_status();
  }

  Result<std::unique_ptr<Graph>> read(BlobReader& in) const {
    ZINC_TRY(graph, read_graph(in, [this](const WeightLocation& at) -> Result<std::span<const std::byte>> {
               return files_.at(at.file).at(at.shard).bytes().subspan(at.begin, at.n_bytes);
             }));
    return std::make_unique<Graph>(std::move(graph));
  }

  Status upload(Backend& backend, BlobReader& in, BlobWriter& out) {
    const ObjectId id = in.get<ObjectId>();
    UploadedWeights uploaded;
    std::vector<const Graph*> graphs;
    for (uint32_t n = in.get<uint32_t>(); n > 0; --n) {
      ZINC_TRY(graph, read(in));
      graphs.push_back(graph.get());
      uploaded.graphs.push_back(std::move(graph));
    }
    const auto release = [this](std::span<const std::byte> bytes) {
      for (const auto& [file, shards] : files_) {
        for (const MappedFile& shard : shards) shard.release_pages(bytes);
      }
    };
    ZINC_TRY(weights, backend.upload(graphs, release));
    out.put(weights->device_bytes());
    out.put(weights->upload_bytes());
    uploaded.weights = std::move(weights);
    weights_.emplace(id, std::move(uploaded));
    return ok_status();
  }

  Status allocate_cache(Backend& backend, BlobReader& in, BlobWriter& out) {
    const ObjectId id = in.get<ObjectId>();
    const std::vector<LayerCache> layers = in.get_all<LayerCache>();
    CacheSizes sizes;
    in.get_all(sizes.n_pages);
    sizes.max_length = in.get<int>();
    sizes.n_slots = in.get<int>();
    sizes.kv_format = find_format(in.get_text());
    ZINC_TRY(cache, backend.allocate_cache(layers, sizes));
    out.put(cache->device_bytes());
    out.put(cache->state_bytes());
    std::vector<size_t> page_bytes;
    for (size_t g = 0; g < sizes.n_pages.size(); ++g) page_bytes.push_back(cache->page_bytes(static_cast<int>(g)));
    out.put_all(std::span<const size_t>(page_bytes));
    caches_[id] = std::move(cache);
    return ok_status();
  }

  Status compile(Backend& backend, BlobReader& in, BlobWriter& out) {
    const ObjectId id = in.get<ObjectId>();
    UploadedWeights& uploaded = weights_.at(in.get<ObjectId>());
    CacheMemory& cache = *caches_.at(in.get<ObjectId>());
    Bucket bucket = in.get<Bucket>();
    if (const ObjectId shared = in.get<ObjectId>(); shared != 0) {
      bucket.shares_memory_with = plans_.at(shared).plan.get();
    }
    ZINC_TRY(graph, read(in));
    ZINC_TRY(plan, backend.compile(*graph, *uploaded.weights, cache, bucket));
    out.put(plan->device_bytes());
    plans_.emplace(id, CompiledPlan{std::move(graph), std::move(plan), {}});
    return ok_status();
  }

  static Status run_step(CompiledPlan& compiled, BlobReader& in, BlobWriter& out) {
    compiled.step.read(in);
    compiled.plan->start(compiled.step.inputs);
    ZINC_TRY(output, compiled.plan->wait());
    write_output(output, out);
    return ok_status();
  }

  static Status run_on_cache(CacheMemory& cache, Call call, BlobReader& in, BlobWriter& out) {
    const int32_t first = in.get<int32_t>();
    if (call == Call::read_state) {
      std::vector<std::byte> bytes(cache.state_bytes());
      if (Status s = cache.read_state(first, bytes); !s.ok()) return s;
      out.put_all(std::span<const std::byte>(bytes));
      return ok_status();
    }
    if (call == Call::write_state) return cache.write_state(first, in.get_all<std::byte>());
    const int32_t second = in.get<int32_t>();
    if (call == Call::copy_state) {
      cache.copy_state(first, second);
    } else if (call == Call::copy_page) {
      cache.copy_page(first, second, in.get<int32_t>());
    } else if (call == Call::prefault_pages) {
      cache.prefault_pages(first, second, in.get<int32_t>());
    } else if (call == Call::write_page) {
      return cache.write_page(first, second, in.get_all<std::byte>());
    } else {
      ZINC_CHECK(call == Call::read_page);
      std::vector<std::byte> bytes(cache.page_bytes(first));
      if (Status s = cache.read_page(first, second, bytes); !s.ok()) return s;
      out.put_all(std::span<const std::byte>(bytes));
    }
    return ok_status();
  }

  World& world_;
  Files files_;
  std::map<ObjectId, std::unique_ptr<Backend>> backends_;  // objects of later members refer to those of earlier ones
  std::map<ObjectId, UploadedWeights> weights_;
  std::map<ObjectId, std::unique_ptr<CacheMemory>> caches_;
  std::map<ObjectId, CompiledPlan> plans_;
};

}  // namespace

Status run_worker(World& world) { return Worker(world).run(); }

}  // namespace zinc::mpi
