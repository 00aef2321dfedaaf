// Options of speculative decoding: which drafter an engine or a request uses.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>

namespace zinc {

class Drafter;

enum class SpeculationMode : uint8_t {
  automatic,  // prompt lookup, else the engine's drafter that runs a model, if it was created with one
  off,
  ngram,  // prompt lookup
  mtp,    // the model's multi-token-prediction block, or its separate MTP file
  draft,  // a draft model
};

std::string_view speculation_mode_name(SpeculationMode mode);  // "auto"
std::optional<SpeculationMode> parse_speculation_mode(std::string_view name);
inline constexpr std::string_view kSpeculationModeNames = "auto, off, ngram, mtp or draft";

struct SpeculationOptions {
  SpeculationMode mode = SpeculationMode::automatic;
  // For SpeculationMode::draft, and for mtp a separate MTP file; empty: the block in the model's file.
  std::filesystem::path draft_model = {};
  // For tests and benchmarks: replaces the drafter that runs a model (nullptr: the engine has none).
  std::function<std::unique_ptr<Drafter>(std::unique_ptr<Drafter>)> replace_drafter = {};
  bool ignores_cost = false;  // for tests: drafts are as long as possible
};

}  // namespace zinc
