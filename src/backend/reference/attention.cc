// attention: all keys and values inside the window, one plain softmax per head.
#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/reference/kernels.h"
#include "tensor/hadamard.h"

namespace zinc::reference {
namespace {

PageId page_at(const StepState& step, int group, int seq, int32_t position) {
  const PageTable& table = step.inputs.page_tables[static_cast<size_t>(group)];
  const int32_t column = position / kPageTokens;
  ZINC_CHECK(column < table.stride);
  return table.entries[static_cast<size_t>(seq) * static_cast<size_t>(table.stride) + static_cast<size_t>(column)];
}

void write_kv(const Node& node, const StepState& step, int layer) {
  const AttentionCache& kv = step.cache.layer(layer).attention;
  const Format& format = step.cache.kv_format();
  const size_t k_dim = static_cast<size_t>(kv.k_dim), v_dim = static_cast<size_t>(kv.v_dim);
  for (int t = 0; t < step.n_rows(node.in[1]); ++t) {
    const int32_t position = step.inputs.positions[static_cast<size_t>(t)];
    const int seq = step.seq_of_token[static_cast<size_t>(t)];
    const PageId page = page_at(step, step.cache.group_of(layer), seq, position);
    const std::span<const float> row = step.row(node.in[1], t), v = step.row(node.in[2], t);
    std::vector<float> k(row.begin(), row.end());
    if (transforms_keys(format)) hadamard_32(k, kKeyFactor);
    for (int h = 0; h < kv.kv_heads; ++h) {
      const size_t head = static_cast<size_t>(h);
      const int offset = position % kPageTokens;
      format.quantize(std::span(k).subspan(head * k_dim, k_dim), step.cache.key_row(layer, page, offset, h));
      format.quantize(v.subspan(head * v_dim, v_dim), step.cache.value_row(layer, page, offset, h));
    }
  }
}

// One query head over positions first..last of its sequence. out: [v_dim].
struct HeadTask {
  const AttentionParams& params;
  int layer, seq, kv_head;
  int32_t first, last;
  std::span<const float> q;
  const float* sink;  // nullptr: none
  std::span<float> out;
};

void attend(const HeadTask& task, const StepState& step) {
  const Format& format = step.cache.kv_format();
  const int group = step.cache.group_of(task.layer);
  std::vector<float> scores(static_cast<size_t>(task.last - task.first + 1));
  std::vector<float> key(task.q.size()), value(task.out.size()), q(task.q.begin(), task.q.end());
  if (transforms_keys(format)) hadamard_32(q, kQueryFactor);
  float largest = task.sink ? *task.sink : -std::numeric_limits<float>::infinity();
  for (int32_t p = task.first; p <= task.last; ++p) {
    const PageId page = page_at(step, group, task.seq, p);
    format.dequantize(step.cache.key_row(task.layer, page, p % kPageTokens, task.kv_head), key);
    float score = dot(q, key) * task.params.scale;
    if (task.params.softcap > 0) score = task.params.softcap * std::tanh(score / task.params.softcap);
    scores[static_cast<size_t>(p - task.first)] = score;
    largest = std::max(largest, score);
  }
  float sum = task.sink ? std::exp(*task.sink - largest) : 0.0f;
  for (float& score : scores) {
    score = std::exp(score - largest);
    sum += score;
  }
  std::ranges::fill(task.out, 0.0f);
  for (int32_t p = task.first; p <= task.last; ++p) {
    const PageId page = page_at(step, group, task.seq, p);
    format.dequantize(step.cache.value_row(task.layer, page, p % kPageTokens, task.kv_head), value);
    const float weight = scores[static_cast<size_t>(p - task.first)] / sum;
    for (size_t i = 0; i < value.size(); ++i) task.out[i] += weight * value[i];
  }
}

}  // namespace

void run_attention(const Node& node, const StepState& step) {
  const AttentionParams& params = node.as<AttentionParams>();
  const int layer = params.cache_layer;
  if (node.in[1]) write_kv(node, step, layer);
  const AttentionCache& kv = step.cache.layer(layer).attention;
  const Shape& q_shape = step.graph.info(node.in[0]).shape;
  const int n_heads = static_cast<int>(q_shape[0]);
  const size_t k_dim = static_cast<size_t>(kv.k_dim), v_dim = static_cast<size_t>(kv.v_dim);
  const std::vector<float> sinks =
      node.in[3] ? dequantize_all(step.graph.info(node.in[3]).weight) : std::vector<float>();
  const size_t n_tasks = static_cast<size_t>(step.n_rows(node.in[0])) * static_cast<size_t>(n_heads);
  step.threads.parallel_for(n_tasks, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      const int t = static_cast<int>(i) / n_heads, h = static_cast<int>(i) % n_heads;
      const size_t head = static_cast<size_t>(h);
      const int32_t position = step.inputs.positions[static_cast<size_t>(t)];
      const int64_t oldest = params.window > 0 ? position - params.window + 1 : 0;
      attend({.params = params,
              .layer = layer,
              .seq = step.seq_of_token[static_cast<size_t>(t)],
              .kv_head = h / (n_heads / kv.kv_heads),
              .first = static_cast<int32_t>(std::max<int64_t>(0, oldest)),
              .last = position,
              .q = step.row(node.in[0], t).subspan(head * k_dim, k_dim),
              .sink = sinks.empty() ? nullptr : &sinks[head],
              .out = step.row(node.out[0], t).subspan(head * v_dim, v_dim)},
             step);
    }
  });
}

}  // namespace zinc::reference
