#include "backend/simt/host/gemv_schedule.h"

#include <algorithm>
#include <numeric>

#include "base/ceil_div.h"

namespace zinc::simt::host {

using gpu::PanelFormat;

GemvSchedule::GemvSchedule(const GemvWork& work, const DeviceLimits& device) : work_(work) {
  constexpr int kMaxClusterSize = 2;  // clusters of four cannot cover all SMs
  constexpr int kLargeBlockBytes = 96 << 10;
  shape_.n_in = work.n_in;
  shape_.n_columns = work.n_columns;
  shape_.n_tokens = work.n_tokens;
  shape_.n_matrices = work.n_matrices;
  shape_.n_input_rows = work.n_input_rows;
  shape_.is_normed = work.n_normed_rows > 0 ? 1 : 0;
  shape_.n_parts = static_cast<int>(work.parts.size());
  shape_.expert_panels = work.n_selected > 0 ? panels_of(work.parts[0]) : 0;
  shape_.has_bulk_copies = device.has_bulk_copies() ? 1 : 0;
  const bool has_large_blocks = decode_block_bytes(device) >= kLargeBlockBytes;
  shape_.batch_floats = has_large_blocks ? 4096 : 2048;
  shape_.n_split_k_warps = has_large_blocks && work.n_columns <= 4 ? 2 : 1;
  build_problems();
  choose_warp_pairs(decode_block_bytes(device));
  choose_cluster_size(device.n_sms / work.n_tokens, device.has_clusters ? kMaxClusterSize : 1);
  size_shared_memory(decode_block_bytes(device));
  if (work.n_tokens == 1) return;
  shape_.blocks_per_token = static_cast<int>(n_blocks_);
  // Blocks without work keep block placement.
  n_blocks_ = std::max<int64_t>(device.n_sms / shape_.cluster_size * shape_.cluster_size, work.n_tokens * n_blocks_);
}

std::vector<const PanelFormat*> GemvSchedule::formats() const {
  std::vector<const PanelFormat*> all;
  for (const GemvWork::Part& part : work_.parts) all.push_back(part.format);
  std::ranges::sort(all, {}, [](const PanelFormat* f) { return f->name; });
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

std::string GemvSchedule::format_names() const {
  std::string names;
  for (const PanelFormat* format : formats()) {
    if (!names.empty()) names += '+';
    names += format->name;
  }
  return names;
}

int GemvSchedule::panels_of(const GemvWork::Part& part) const {
  return static_cast<int>(ceil_div(part.n_out, simt::kPanelRows)) *
         (part.is_split_k ? simt::segment_count(shape_.n_in) : 1);
}

void GemvSchedule::build_problems() {
  const std::vector<const PanelFormat*> all = formats();
  order_.resize(work_.parts.size());
  std::iota(order_.begin(), order_.end(), 0);
  const auto key = [&](size_t i) { return std::pair(work_.parts[i].format->name, work_.parts[i].is_split_k); };
  std::ranges::stable_sort(order_, {}, key);
  for (size_t i = 0; i < order_.size(); ++i) {
    const GemvWork::Part& part = work_.parts[order_[i]];
    if (i == 0 || key(order_[i - 1]) != key(order_[i])) {
      problems_.push_back({.format = static_cast<int>(std::ranges::find(all, part.format) - all.begin()),
                           .is_split_k = part.is_split_k ? 1 : 0,
                           .first_part = static_cast<int>(i),
                           .first_block = 0,
                           .split = {}});
      n_panels_.push_back(0);
    }
    n_panels_.back() += panels_of(part) * std::max(1, work_.n_selected);
  }
}

// The most warp pairs that can each have two segments in flight, of the format with the largest segments.
void GemvSchedule::choose_warp_pairs(int block_bytes) {
  constexpr int kMinWarpPairs = 4;
  shape_.pipeline_bytes = block_bytes / 4 * 3;
  int max_segment_bytes = 1;
  for (const GemvWork::Part& part : work_.parts) {
    if (!part.is_split_k && part.format->q8_block > 0)
      max_segment_bytes = std::max(max_segment_bytes, part.format->segment_bytes());
  }
  // A normed row is held in registers: for long rows fewer warps, with more registers each.
  const bool has_residual = work_.n_normed_rows > work_.n_columns;
  const int max_width_8_pairs = has_residual ? 4096 : 6144, max_width_6_pairs = has_residual ? 6144 : 8192;
  const int max_pairs = work_.n_columns * work_.n_tokens > 1                           ? 6
                        : work_.n_normed_rows == 0 || shape_.n_in <= max_width_8_pairs ? simt::kMaxWarpPairs
                        : shape_.n_in <= max_width_6_pairs                             ? 6
                                                                                       : kMinWarpPairs;
  shape_.n_warp_pairs = std::clamp(shape_.pipeline_bytes / (2 * max_segment_bytes), kMinWarpPairs, max_pairs);
}

// Assigns clusters one by one to the problem whose blocks read the most bytes, until each SM has a block. Split-K
// problems get at most half of the blocks if there are other problems.
int64_t GemvSchedule::assign_blocks(int n_sms, int cluster_size) {
  std::vector<int64_t> n_clusters(problems_.size()), loads(problems_.size());
  int64_t n_free = n_sms / cluster_size;
  const auto assign = [&](size_t i, int64_t n) {
    n_clusters[i] += n;
    n_free -= n;
    if (problems_[i].is_split_k) return;
    loads[i] = ceil_div(n_panels_[i], n_clusters[i]) * ceil_div(simt::tiles_per_panel(shape_), cluster_size) *
               format_of(problems_[i]).segment_bytes();
  };
  const int64_t n_split_k =
      std::ranges::count_if(problems_, [](const auto& problem) { return problem.is_split_k != 0; });
  const int64_t max_split_k_clusters = n_split_k == static_cast<int64_t>(problems_.size())
                                           ? n_free
                                           : std::max<int64_t>(1, n_free / (2 * std::max<int64_t>(1, n_split_k)));
  for (size_t i = 0; i < problems_.size(); ++i) {
    assign(i, problems_[i].is_split_k
                  ? std::min(ceil_div(n_panels_[i], shape_.n_split_k_warps * cluster_size), max_split_k_clusters)
                  : 1);
  }
  while (n_free > 0) assign(static_cast<size_t>(std::ranges::max_element(loads) - loads.begin()), 1);
  n_blocks_ = 0;
  for (size_t i = 0; i < problems_.size(); ++i) {
    const int64_t n_shares = n_clusters[i] * (problems_[i].is_split_k ? cluster_size : 1);
    problems_[i].first_block = static_cast<int>(n_blocks_);
    problems_[i].split = {static_cast<int>(n_panels_[i] / n_shares), static_cast<int>(n_panels_[i] % n_shares)};
    n_blocks_ += n_clusters[i] * cluster_size;
  }
  return std::ranges::max(loads);
}

int GemvSchedule::max_panels() const {
  int max = 1;
  for (const simt::GemvProblem& problem : problems_) {
    if (!problem.is_split_k)
      max = std::max(max, problem.split.panels_per_cluster + (problem.split.n_extra > 0 ? 1 : 0));
  }
  return max;
}

// The blocks of a cluster exchange partial sums only once, so all panels must be one batch.
bool GemvSchedule::is_one_batch(int cluster_size) const {
  simt::GemvShape candidate = shape_;
  candidate.cluster_size = cluster_size;
  candidate.max_panels = max_panels();
  return simt::panels_per_batch(candidate) == candidate.max_panels;
}

// Prefers a larger cluster if the busiest block reads no more bytes and each block quantizes fewer segments. One block
// per cluster if each warp pair has one work tile and all tiles fit the pipeline: a second block would only add a wait.
void GemvSchedule::choose_cluster_size(int n_sms, int max_cluster_size) {
  constexpr int kMinSegmentsPerBlock = 4;
  shape_.cluster_size = 1;
  int64_t min_load = assign_blocks(n_sms, 1);
  if (min_load == 0) return;  // all parts are split-K
  if (max_panels() * simt::tiles_per_panel(shape_) <= shape_.n_warp_pairs && min_load <= shape_.pipeline_bytes) return;
  for (int n = 2; n <= std::min({max_cluster_size, simt::tiles_per_panel(shape_), n_sms}); n *= 2) {
    const int64_t load = assign_blocks(n_sms, n);
    if (load > min_load || (load == min_load && simt::segment_count(shape_.n_in) < n * kMinSegmentsPerBlock)) continue;
    if (!is_one_batch(n)) continue;
    min_load = load;
    shape_.cluster_size = n;
  }
  assign_blocks(n_sms, shape_.cluster_size);
}

void GemvSchedule::size_shared_memory(int block_bytes) {
  const int dynamic_bytes = block_bytes - 512 - 8 * work_.n_routed_experts;
  shape_.max_panels = max_panels();
  for (const simt::GemvProblem& problem : problems_) {
    const int n_inputs = problem.is_split_k ? simt::segment_count(shape_.n_in) : simt::max_block_segments(shape_);
    const bool is_float = format_of(problem).q8_block == 0;
    shape_.x_bytes = std::max(shape_.x_bytes, shape_.n_columns * n_inputs * simt::input_segment_bytes(is_float));
  }
  const int n_panels = simt::panels_per_batch(shape_), n_buffers = n_panels < shape_.max_panels ? 2 : 1;
  shape_.partial_floats = n_buffers * n_panels * simt::panel_floats(shape_);
  shape_.pipeline_bytes = std::max(shape_.pipeline_bytes / 2,
                                   std::min(shape_.pipeline_bytes, dynamic_bytes - simt::gemv_smem(shape_).pipeline));
}

size_t GemvSchedule::shared_bytes() const {
  int pipeline_bytes = 0;
  for (const GemvWork::Part& part : work_.parts) {
    const int bytes = part.format->segment_bytes();
    if (part.is_split_k) {
      pipeline_bytes = std::max(pipeline_bytes, shape_.n_split_k_warps * bytes);
    } else if (part.format->q8_block > 0) {
      pipeline_bytes = std::max(pipeline_bytes, simt::pipeline_stages(shape_, bytes) * bytes);
    }
  }
  return static_cast<size_t>(simt::gemv_smem(shape_).pipeline + pipeline_bytes);
}

}  // namespace zinc::simt::host
