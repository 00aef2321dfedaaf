#include "model/model.h"

#include <algorithm>
#include <limits>

#include "base/sanitize_for_terminal.h"
#include "graph/rope.h"

namespace zinc {
namespace {

constexpr int kMaxBlocks = 1024;  // far above any published model; limits the memory that hostile metadata can request

Result<const Architecture*> find_architecture(const GgufFile& file) {
  ZINC_TRY(name, file.get<std::string_view>("general.architecture"));
  std::string known;
  for (const Architecture* const* a = kArchitectures; *a; ++a) {
    if ((*a)->gguf_name == name) return *a;
    if (const MtpFileArchitecture* mtp = (*a)->mtp_file; mtp && mtp->gguf_name == name) {
      return fail(
          ErrorCode::unsupported,
          "{}: this is an MTP file, which drafts for a model of the architecture '{}' and cannot run alone; pass "
          "that model, with --speculate mtp:FILE",
          file.name(), (*a)->gguf_name);
    }
    known += (known.empty() ? "" : ", ") + std::string((*a)->gguf_name);
  }
  return fail(ErrorCode::unsupported, "{}: the model architecture '{}' is not supported; supported are: {}",
              file.name(), sanitize_for_terminal(name), known);
}

// A token without a row in the embedding table would be read out of bounds. Fewer tokens than rows are common: padding.
Status check_vocabulary(const GgufFile& file, int64_t vocab_size) {
  const GgufValue* tokens = file.find("tokenizer.ggml.tokens");
  const GgufArray* texts = tokens ? std::get_if<GgufArray>(&tokens->data) : nullptr;
  if (!texts || texts->size() <= static_cast<uint64_t>(vocab_size)) return ok_status();
  return fail(
      ErrorCode::invalid_input,
      "{}: tokenizer.ggml.tokens has {} entries, but tensor 'token_embd.weight' has only {} rows; the file is damaged "
      "or was converted with another model's tokenizer",
      file.name(), texts->size(), vocab_size);
}

Result<ModelConfig> read_config(const GgufFile& file, Metadata& metadata) {
  ModelConfig config;
  config.dim = metadata.count("embedding_length");
  const int64_t n_layers = metadata.count("block_count");
  config.max_context = metadata.count("context_length");
  if (!metadata.status().ok()) return metadata.status().error();
  if (n_layers > kMaxBlocks) {
    return fail(ErrorCode::invalid_input, "{}: the file claims {} layers, at most {} are supported", file.name(),
                n_layers, kMaxBlocks);
  }
  config.n_layers = static_cast<int>(n_layers);
  ZINC_TRY(table, file.tensor("token_embd.weight"));
  if (table.shape.n_dims() != 2 || table.shape[0] > std::numeric_limits<int32_t>::max()) {
    return fail(ErrorCode::invalid_input, "{}: tensor 'token_embd.weight' is {}, expected [vocabulary,{}]", file.name(),
                table.shape.to_string(), config.dim);
  }
  config.vocab_size = table.shape[0];
  if (Status valid = check_vocabulary(file, config.vocab_size); !valid.ok()) return valid.error();
  return config;
}

WeightSource weights_of(const GgufFile& file) {
  return [&file](std::string_view name) -> const TensorView* {
    const GgufTensor* tensor = file.find_tensor(name);
    return tensor ? &tensor->view : nullptr;
  };
}

using BuildFunction = void (*)(const ModelConfig&, Metadata&, GraphBuilder&);

Result<Graph> build_graph(const GgufFile& file, const ModelConfig& config, Metadata& metadata, BuildFunction build) {
  GraphBuilder builder(file.name(), weights_of(file));
  build(config, metadata, builder);
  if (!metadata.status().ok()) return metadata.status().error();
  return builder.finish();
}

// Both graphs use the same block indices; a draft block is used only by the draft graph.
std::vector<LayerCache> merge_caches(std::span<const LayerCache> a, std::span<const LayerCache> b) {
  std::vector<LayerCache> merged(std::max(a.size(), b.size()));
  std::ranges::copy(a, merged.begin());
  for (size_t i = 0; i < b.size(); ++i) {
    if (b[i] != LayerCache{}) merged[i] = b[i];
  }
  return merged;
}

}  // namespace

int64_t longest_context(const Model& model) {
  return std::max(model.config.max_context, rope_extension(model.graph).max_context);
}

Result<Model> read_model(const GgufFile& file, Draft wanted) {
  Model model;
  ZINC_TRY(architecture, find_architecture(file));
  model.architecture = architecture;
  Metadata metadata(file, architecture->gguf_name);
  ZINC_TRY(config, read_config(file, metadata));
  model.config = config;
  ZINC_TRY(graph, build_graph(file, config, metadata, architecture->build));
  model.graph = std::move(graph);
  if (wanted == Draft::load && architecture->build_draft && architecture->has_draft(metadata)) {
    ZINC_TRY(draft, build_graph(file, config, metadata, architecture->build_draft));
    model.draft = std::move(draft);
  }
  const std::span<const LayerCache> draft_caches = model.draft ? model.draft->caches() : std::span<const LayerCache>();
  model.caches = merge_caches(model.graph.caches(), draft_caches);
  return model;
}

Result<Graph> read_mtp_file(const GgufFile& file, const Model& target) {
  const MtpFileArchitecture* const architecture = target.architecture->mtp_file;
  if (!architecture) {
    return fail(ErrorCode::unsupported, "{}: models of the architecture '{}' have no separate MTP file", file.name(),
                target.architecture->gguf_name);
  }
  ZINC_TRY(name, file.get<std::string_view>("general.architecture"));
  if (name != architecture->gguf_name) {
    return fail(ErrorCode::unsupported, "{}: its architecture is '{}'; an MTP file for '{}' has '{}'", file.name(),
                sanitize_for_terminal(name), target.architecture->gguf_name, architecture->gguf_name);
  }
  Metadata metadata(file, architecture->gguf_name);
  ZINC_TRY(config, read_config(file, metadata));
  if (config.vocab_size != target.config.vocab_size) {
    return fail(ErrorCode::unsupported,
                "{}: it has {} logits, but the model has {}; use the MTP file that was published for this model",
                file.name(), config.vocab_size, target.config.vocab_size);
  }
  GraphBuilder builder(file.name(), weights_of(file), &target.graph);
  architecture->build(config, target.config, metadata, builder);
  if (!metadata.status().ok()) return metadata.status().error();
  return builder.finish();
}

}  // namespace zinc
