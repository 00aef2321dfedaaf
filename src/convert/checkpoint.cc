#include "convert/checkpoint.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "base/json.h"
#include "base/sanitize_for_terminal.h"
#include "convert/read_file.h"

namespace zinc {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kIndexName = "model.safetensors.index.json";
constexpr std::string_view kSingleName = "model.safetensors";

constexpr std::array<std::string_view, 12> kOtherModalities = {
    "vision_tower.", "vision_model.", "visual.",      "multi_modal_projector.", "embed_vision.", "audio_tower.",
    "embed_audio.",  "audio_model.",  "vision_embed", "image_newline",          "audio_embed",   "vision_proj"};

bool is_other_modality(std::string_view name) {
  return std::ranges::any_of(kOtherModalities, [&](std::string_view part) { return name.find(part) != name.npos; });
}

std::string language_model_name(std::string name) {
  constexpr std::string_view kPrefix = "language_model.";
  if (const size_t at = name.find(kPrefix); at != name.npos) name.erase(at, kPrefix.size());
  return name;
}

using ShardTensors = std::map<std::string, std::set<std::string>>;  // by file

Result<ShardTensors> read_index(const fs::path& path) {
  ZINC_TRY(root, read_json_object(path));
  const json::value* const map = root.if_contains("weight_map");
  if (!map || !map->is_object() || map->get_object().empty()) {
    return fail(ErrorCode::invalid_input, "{}: has no weight_map; download it again", path.string());
  }
  ShardTensors files;
  for (const auto& [name, file] : map->get_object()) {
    // A name with a folder could point anywhere.
    const fs::path file_name = file.is_string() ? std::string_view(file.get_string()) : std::string_view();
    if (file_name.empty() || file_name != file_name.filename() || file_name.extension() != ".safetensors") {
      return fail(ErrorCode::invalid_input,
                  "{}: the file of tensor '{}' must be a .safetensors file in the same folder", path.string(),
                  sanitize_for_terminal(std::string_view(name)));
    }
    files[file_name.string()].insert(std::string(name));
  }
  return files;
}

// The shard's tensors must be those that the index promises.
Status check_shard(const std::set<std::string>& expected, const std::vector<SafetensorsTensor>& tensors,
                   const fs::path& shard) {
  std::set<std::string> found;
  for (const SafetensorsTensor& tensor : tensors) found.insert(tensor.name);
  for (const std::string& name : expected) {
    if (found.contains(name)) continue;
    return fail(ErrorCode::invalid_input,
                "{}: has no tensor '{}', which {} says is in it; download both files again, of the same revision",
                shard.string(), sanitize_for_terminal(name), kIndexName);
  }
  for (const std::string& name : found) {
    if (expected.contains(name)) continue;
    return fail(ErrorCode::invalid_input,
                "{}: tensor '{}' is not in {}; download both files again, of the same revision", shard.string(),
                sanitize_for_terminal(name), kIndexName);
  }
  return ok_status();
}

Error no_weights(const fs::path& folder) {
  std::error_code ignored;
  if (fs::exists(folder / "pytorch_model.bin", ignored) ||
      fs::exists(folder / "pytorch_model.bin.index.json", ignored)) {
    return fail(ErrorCode::unsupported,
                "{}: the weights are a PyTorch pickle, which can run code; save them as safetensors first (in Python: "
                "model.save_pretrained(...))",
                folder.string());
  }
  if (fs::exists(folder / "consolidated.safetensors", ignored)) {
    return fail(ErrorCode::unsupported,
                "{}: consolidated.safetensors has Mistral's own tensor names; download the model.safetensors files of "
                "the same repository",
                folder.string());
  }
  return fail(ErrorCode::not_found, "{}: has neither {} nor {}; pass the folder of a Hugging Face checkpoint",
              folder.string(), kSingleName, kIndexName);
}

}  // namespace

Result<Checkpoint> Checkpoint::open(const fs::path& folder) {
  Checkpoint checkpoint;
  std::error_code ignored;
  if (!fs::exists(folder / kIndexName, ignored)) {
    if (!fs::exists(folder / kSingleName, ignored)) return no_weights(folder);
    ZINC_TRY(added, checkpoint.add_file(folder / kSingleName, nullptr));
    return checkpoint;
  }
  ZINC_TRY(files, read_index(folder / kIndexName));
  for (const auto& [file, expected] : files) {
    ZINC_TRY(added, checkpoint.add_file(folder / file, &expected));
  }
  return checkpoint;
}

Status Checkpoint::add_file(const fs::path& path, const std::set<std::string>* expected) {
  ZINC_TRY(mapped, MappedFile::open(path));
  files_.push_back(std::move(mapped));
  ZINC_TRY(tensors, parse_safetensors(files_.back().bytes(), path.string()));
  if (expected) {
    ZINC_TRY(checked, check_shard(*expected, tensors, path));
  }
  for (SafetensorsTensor& tensor : tensors) {
    if (is_other_modality(tensor.name)) {
      ++n_left_out_;
      continue;
    }
    tensor.name = language_model_name(std::move(tensor.name));
    if (!index_.emplace(tensor.name, tensors_.size()).second) {
      return fail(ErrorCode::invalid_input, "{}: tensor '{}' is also in {}", path.string(),
                  sanitize_for_terminal(tensor.name), find(tensor.name)->file);
    }
    tensors_.push_back({std::move(tensor), path.string()});
  }
  return ok_status();
}

const CheckpointTensor* Checkpoint::find(std::string_view name) const {
  const auto found = index_.find(std::string(name));
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

void Checkpoint::release_pages(const CheckpointTensor& tensor) const {
  for (const MappedFile& file : files_) file.release_pages(tensor.tensor.bytes);
}

}  // namespace zinc
