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

// The device that the workspaces of a plan allocate from. Steps run one after the other, so the workspaces share their
// memory: the k-th allocations of all are in one buffer, as large as the largest. Tables in them have the same values.
class SharedWorkspaceMemory final : public Device {
 public:
  explicit SharedWorkspaceMemory(Device& device) : device_(device) {}
  // Allocations from here on are of another workspace.
  void begin_workspace() {
    next_ = 0;
    new_buffers_.clear();
  }
  size_t device_bytes() const { return device_bytes_; }

  using Device::allocate;
  Result<Buffer> allocate(size_t n_bytes, std::string_view what, Memory kind) override;
  Result<Buffer> allocate_unshared(size_t n_bytes, std::string_view what) override;
  Status write(const Buffer& to, size_t offset, std::span<const std::byte> from) override {
    return device_.write(to, offset, from);
  }
  Status read(const Buffer& from, size_t offset, std::span<std::byte> to) override {
    return device_.read(from, offset, to);
  }
  Status copy(std::span<const BufferCopy> copies) override { return device_.copy(copies); }
  Status wait_all() override { return device_.wait_all(); }
  bool is_on_device(Memory kind) const override { return device_.is_on_device(kind); }
  bool needs_write(const Buffer& buffer) const override;

 private:
  Device& device_;
  std::vector<std::vector<Buffer>> buffers_;  // per allocation: usually one, larger ones if a workspace needs more
  std::vector<Address> new_buffers_;          // of the current workspace, not shared with one before
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

  // has_batches: see step_classes().
  static Result<std::unique_ptr<PlanMemory>> allocate(const Graph& graph, const Bucket& bucket, Device& device,
                                                      const MakeWorkspace& make_workspace, bool has_batches = false);

  const std::vector<StepClass>& classes() const { return classes_; }
  const Workspace& workspace(size_t step_class) const { return *workspaces_[step_class]; }
  const StepBuffers& step(size_t index) const { return steps_[index]; }  // of step k: k % kMaxInFlight
  size_t device_bytes() const { return shared_.device_bytes() + step_bytes_; }

 private:
  PlanMemory(const Graph& graph, const Bucket& bucket, Device& device, bool has_batches)
      : graph_(graph), bucket_(bucket), device_(device), classes_(step_classes(bucket, has_batches)), shared_(device) {
    std::erase_if(classes_, [&](const StepClass& c) { return c.max_tokens < bucket.min_class_tokens; });
  }
  Status allocate_workspaces(const MakeWorkspace& make_workspace);
  Status allocate_steps();

  const Graph& graph_;
  Bucket bucket_;
  Device& device_;
  std::vector<StepClass> classes_;
  SharedWorkspaceMemory shared_;
  std::vector<std::unique_ptr<Workspace>> workspaces_;  // per step class
  std::array<StepBuffers, kMaxInFlight> steps_;
  size_t step_bytes_ = 0;
};

}  // namespace zinc::gpu
