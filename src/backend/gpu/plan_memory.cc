#include "backend/gpu/plan_memory.h"

#include <algorithm>

namespace zinc::gpu {

Result<Buffer> SharedWorkspaceMemory::allocate(size_t n_bytes, std::string_view what, Memory kind) {
  if (next_ == buffers_.size()) buffers_.emplace_back();
  std::vector<Buffer>& shared = buffers_[next_++];
  if (n_bytes == 0) return Buffer();
  auto fits = std::ranges::find_if(shared, [&](const Buffer& buffer) { return buffer.size() >= n_bytes; });
  if (fits == shared.end()) {
    ZINC_TRY(allocated, device_.allocate(n_bytes, what, kind));
    if (device_.is_on_device(kind)) device_bytes_ += n_bytes;
    shared.push_back(std::move(allocated));
    fits = std::prev(shared.end());
  }
  return fits->share(n_bytes);
}

Result<Buffer> SharedWorkspaceMemory::allocate_unshared(size_t n_bytes, std::string_view what) {
  if (n_bytes == 0) return Buffer();
  if (device_.is_on_device(Memory::device)) device_bytes_ += n_bytes;
  return device_.allocate_unshared(n_bytes, what);
}

Result<Buffer> SharedWorkspaceMemory::allocate_table(std::span<const std::byte> contents, std::string_view what) {
  const auto same =
      std::ranges::find_if(tables_, [&](const Table& t) { return std::ranges::equal(t.contents, contents); });
  if (same != tables_.end()) return same->buffer.share(contents.size());
  ZINC_TRY(buffer, device_.allocate_table(contents, what));
  if (device_.is_on_device(Memory::device)) device_bytes_ += contents.size();
  tables_.push_back({{contents.begin(), contents.end()}, std::move(buffer)});
  return tables_.back().buffer.share(contents.size());
}

Result<std::unique_ptr<PlanMemory>> PlanMemory::allocate(const Graph& graph, const Bucket& bucket, Device& device,
                                                         const MakeWorkspace& make_workspace, bool has_batches,
                                                         const PlanMemory* other) {
  std::unique_ptr<PlanMemory> memory(new PlanMemory(graph, bucket, device, has_batches, other));
  const size_t shared_bytes = memory->shared_->device_bytes() + memory->step_memory_->device_bytes();
  if (Status s = memory->allocate_workspaces(make_workspace); !s.ok()) return s.error();
  if (Status s = memory->allocate_steps(); !s.ok()) return s.error();
  memory->device_bytes_ = memory->shared_->device_bytes() + memory->step_memory_->device_bytes() - shared_bytes;
  return memory;
}

// The largest class first: the others share its memory.
Status PlanMemory::allocate_workspaces(const MakeWorkspace& make_workspace) {
  workspaces_.resize(classes_.size());
  for (size_t i = classes_.size(); i-- > 0;) {
    shared_->begin_workspace();
    ZINC_TRY(workspace, make_workspace(*shared_, bucket_of(classes_[i], bucket_)));
    workspaces_[i] = std::move(workspace);
  }
  return ok_status();
}

Status PlanMemory::allocate_steps() {
  const Workspace& largest = *workspaces_.back();
  size_t n_upload_ints = 0;  // a smaller class may have attention units, which the largest has not
  for (const auto& workspace : workspaces_) n_upload_ints = std::max(n_upload_ints, workspace->layout().n_ints);
  const size_t n_tokens = static_cast<size_t>(bucket_.max_tokens);
  const size_t n_outputs = static_cast<size_t>(std::max(1, bucket_.max_outputs));
  const auto floats_of = [&](Value v) { return v ? static_cast<size_t>(graph_.info(v).shape.elems()) : 0; };
  step_memory_->begin_workspace();
  for (StepBuffers& step : steps_) {
    struct Part {
      Buffer& buffer;
      size_t n_bytes;
      Memory kind;
    };
    for (const Part& part : {Part{step.upload, n_upload_ints * sizeof(int), Memory::upload},
                             {step.hidden_in, largest.hidden_in_floats() * n_tokens * sizeof(float), Memory::upload},
                             {step.sampled, n_outputs * sizeof(int), Memory::readback},
                             {step.logits, floats_of(graph_.logits()) * n_outputs * sizeof(float), Memory::readback},
                             {step.hidden, floats_of(graph_.hidden()) * n_tokens * sizeof(float), Memory::readback}}) {
      ZINC_TRY(buffer, step_memory_->allocate(part.n_bytes, "step inputs and outputs", part.kind));
      part.buffer = std::move(buffer);
    }
  }
  return ok_status();
}

}  // namespace zinc::gpu
