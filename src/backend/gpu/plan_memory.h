// All memory of a plan, allocated when it is compiled: the workspace of every step class, and the host memory of the
// steps in flight. On a LayoutDevice it is only counted.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <vector>

#include "backend/gpu/step_class.h"
#include "backend/gpu/workspace.h"

namespace zinc::gpu {

// The device that the workspaces of a plan, or of several whose steps never overlap, allocate from. Steps run one after
// the other, so the workspaces share their memory: the k-th allocations of all are in one buffer, as large as the
// largest. Tables with the same contents are one buffer.
class SharedWorkspaceMemory final : public Device {
 public:
  explicit SharedWorkspaceMemory(Device& device) : device_(device) {}
  // Allocations from here on are of another workspace.
  void begin_workspace() { next_ = 0; }
  size_t device_bytes() const { return device_bytes_; }

  using Device::allocate;
  Result<Buffer> allocate(size_t n_bytes, std::string_view what, Memory kind) override;
  Result<Buffer> allocate_unshared(size_t n_bytes, std::string_view what) override;
  Result<Buffer> allocate_table(std::span<const std::byte> contents, std::string_view what) override;
  Status write(const Buffer& to, size_t offset, std::span<const std::byte> from) override {
    return device_.write(to, offset, from);
  }
  Status read(const Buffer& from, size_t offset, std::span<std::byte> to) override {
    return device_.read(from, offset, to);
  }
  Status copy(std::span<const BufferCopy> copies) override { return device_.copy(copies); }
  Status wait_all() override { return device_.wait_all(); }
  bool is_on_device(Memory kind) const override { return device_.is_on_device(kind); }

 private:
  Device& device_;
  std::vector<std::vector<Buffer>> buffers_;  // per allocation: usually one, larger ones if a workspace needs more
  struct Table {
    std::vector<std::byte> contents;
    Buffer buffer;
  };
  std::vector<Table> tables_;
  size_t next_ = 0, device_bytes_ = 0;
};

class PlanMemory {
 public:
  static constexpr size_t kMaxInFlight = 2;
  struct StepBuffers {  // host memory of a step in flight
    Buffer upload, hidden_in, sampled, logits, hidden;
  };
  // Allocates the workspace of steps that fit the bucket.
  using MakeWorkspace = std::function<Result<std::unique_ptr<Workspace>>(Device& device, const Bucket& bucket)>;

  // has_batches: see step_classes(). `other`: of Bucket::shares_memory_with.
  static Result<std::unique_ptr<PlanMemory>> allocate(const Graph& graph, const Bucket& bucket, Device& device,
                                                      const MakeWorkspace& make_workspace, bool has_batches = false,
                                                      const PlanMemory* other = nullptr);

  const std::vector<StepClass>& classes() const { return classes_; }
  const Workspace& workspace(size_t step_class) const { return *workspaces_[step_class]; }
  const StepBuffers& step(size_t index) const { return steps_[index]; }  // of step k: k % kMaxInFlight
  size_t device_bytes() const { return device_bytes_; }                  // without what it shares with the other plan

 private:
  PlanMemory(const Graph& graph, const Bucket& bucket, Device& device, bool has_batches, const PlanMemory* other)
      : graph_(graph),
        bucket_(bucket),
        classes_(step_classes(bucket, has_batches)),
        shared_(other ? other->shared_ : std::make_shared<SharedWorkspaceMemory>(device)),
        step_memory_(other ? other->step_memory_ : std::make_shared<SharedWorkspaceMemory>(device)) {
    std::erase_if(classes_, [&](const StepClass& c) { return c.max_tokens < bucket.min_class_tokens; });
  }
  Status allocate_workspaces(const MakeWorkspace& make_workspace);
  Status allocate_steps();

  const Graph& graph_;
  Bucket bucket_;
  std::vector<StepClass> classes_;
  std::shared_ptr<SharedWorkspaceMemory> shared_, step_memory_;  // of the workspaces, and of the steps in flight
  std::vector<std::unique_ptr<Workspace>> workspaces_;           // per step class
  std::array<StepBuffers, kMaxInFlight> steps_;
  size_t device_bytes_ = 0;
};

}  // namespace zinc::gpu
