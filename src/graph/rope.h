// The rotation of each RoPE pair, including context extension: linear and YaRN for all sequences, YaRN or longrope for
// those that need it (RopeExtension). Backends compute tables from it when a plan is compiled.
#pragma once

#include <span>
#include <vector>

#include "graph/graph.h"

namespace zinc {

inline constexpr int kMaxRopeScalings = 4;  // YaRN factors 1 to 4, as Qwen recommends for its models

// Stretches a context of `original` positions with YaRN. REQUIRES: params.position_scale is 1 / the extension factor.
void extend_with_yarn(RopeParams& params, int64_t original);

// Radians per position for each of the n_dims / 2 pairs. factors: one divisor per pair, or empty.
std::vector<double> rope_frequencies(const RopeParams& params, std::span<const float> factors);

// The rotation of the sequences with one RoPE scaling.
struct RopeRotation {
  std::vector<double> frequencies;  // radians per position, of each pair
  float amplitude = 1;
  bool operator==(const RopeRotation&) const = default;
};
// By RoPE scaling; one rotation if all scalings have the same. long_factors: of longrope, else empty.
std::vector<RopeRotation> rope_rotations(const RopeParams& params, std::span<const float> factors,
                                         std::span<const float> long_factors, int n_scalings);

// The extension of the nodes that have one; kind none: no node has.
RopeExtension rope_extension(const Graph& graph);
// Positions of the longest sequence of each RoPE scaling, ascending, if none is longer than `context`: the last one.
std::vector<int> rope_contexts(const Graph& graph, int context);
// The RoPE scaling of a sequence of this length. REQUIRES: contexts are not empty.
int rope_scaling_for(std::span<const int> contexts, int64_t length);

}  // namespace zinc
