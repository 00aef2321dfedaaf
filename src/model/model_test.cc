#include "model/model.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "graph/cost_table.h"
#include "graph/graph_export.h"
#include "tests/support/contains_all.h"
#include "tests/support/dot_checks.h"
#include "tests/support/memory_plan_checks.h"
#include "tests/support/tiny_llama.h"

namespace zinc {
namespace {

// A file in memory, parsed by read_model.
struct Reading {
  explicit Reading(const GgufWriter& writer)
      : bytes(writer.bytes()),
        file(std::move(GgufFile::parse(std::as_bytes(std::span(bytes)), "tiny.gguf").value())),
        model(read_model(file)) {}
  std::string error() const { return model.ok() ? "" : model.error().message; }

  std::string bytes;
  GgufFile file;
  Result<Model> model;
};

TEST(ReadModel, gives_sizes_graph_and_caches) {
  const Reading r(TinyLlama{}.file());
  ASSERT_EQ(r.error(), "");
  const Model& model = r.model.value();
  EXPECT_EQ(model.architecture->gguf_name, "llama");
  EXPECT_EQ(model.config.vocab_size, 40);
  EXPECT_EQ(model.config.dim, 32);
  EXPECT_EQ(model.config.n_layers, 2);
  EXPECT_EQ(model.config.max_context, 128);
  EXPECT_FALSE(model.draft.has_value());
  ASSERT_EQ(model.caches.size(), 2u);
  EXPECT_EQ(model.caches[1].attention, (AttentionCache{.kv_heads = 2, .k_dim = 8, .v_dim = 8, .window = 0}));
  EXPECT_EQ(model.graph.info(model.graph.logits()).shape, Shape({40}));
}

TEST(ReadModel, an_unknown_architecture_lists_the_supported_ones) {
  const Reading r(TinyLlama{.architecture = "llamoid"}.file());
  EXPECT_EQ(r.model.error().code, ErrorCode::unsupported);
  EXPECT_TRUE(contains_all(r.error(), {"tiny.gguf", "llamoid"}));
  for (const Architecture* const* a = kArchitectures; *a; ++a) EXPECT_TRUE(contains_all(r.error(), {(*a)->gguf_name}));
}

TEST(ReadModel, an_architectures_name_cannot_control_a_terminal) {
  EXPECT_TRUE(contains_all(Reading(TinyLlama{.architecture = "x\x1b[2J\n"}.file()).error(), {"'x\\u001b[2J\\n'"}));
}

TEST(ReadModel, a_file_without_an_architecture_is_refused_by_key) {
  EXPECT_TRUE(
      contains_all(Reading(GgufWriter().add("general.name", "x")).error(), {"tiny.gguf", "general.architecture"}));
}

TEST(ReadModel, more_layers_than_any_model_has_are_refused_before_they_cost_anything) {
  EXPECT_TRUE(contains_all(Reading(TinyLlama{.n_layers = 1025}.metadata()).error(), {"tiny.gguf", "1025", "1024"}));
  EXPECT_TRUE(
      contains_all(Reading(TinyLlama{.n_layers = 4000000000u}.metadata()).error(), {"block_count", "4000000000"}));
}

TEST(ReadModel, a_file_without_a_token_table_is_refused_by_tensor) {
  EXPECT_TRUE(contains_all(Reading(TinyLlama{.leave_out = "token_embd.weight"}.file()).error(),
                           {"tiny.gguf", "token_embd.weight"}));
}

TEST(ReadModel, a_token_table_that_is_not_a_matrix_is_rejected) {
  GgufWriter w = TinyLlama{}.metadata();
  w.add_tensor("token_embd.weight", {32}, k_f32, std::vector<float>(32));
  EXPECT_TRUE(contains_all(Reading(w).error(), {"token_embd.weight", "[32]"}));
}

TEST(ReadModel, a_token_table_of_another_width_is_rejected) {
  GgufWriter w = TinyLlama{}.metadata();
  w.add_tensor("token_embd.weight", {40, 16}, k_f32, std::vector<float>(640));
  EXPECT_TRUE(contains_all(Reading(w).error(), {"token_embd.weight", "[40,16]", "[40,32]"}));
}

TEST(ReadModel, a_token_without_a_row_in_the_table_is_rejected) {
  const auto with_tokens = [](size_t n) {
    return Reading(TinyLlama{}.file().add("tokenizer.ggml.tokens", std::vector<std::string>(n, "x"))).error();
  };
  EXPECT_EQ(with_tokens(39), "") << "rows without a token are padding";
  EXPECT_EQ(with_tokens(40), "");
  EXPECT_TRUE(contains_all(with_tokens(41), {"tiny.gguf", "tokenizer.ggml.tokens", "41", "token_embd.weight", "40"}));
}

TEST(ReadModel, every_missing_tensor_is_named) {
  for (const char* name :
       {"blk.1.attn_norm.weight", "blk.0.attn_v.weight", "blk.1.ffn_down.weight", "output_norm.weight"}) {
    EXPECT_TRUE(contains_all(Reading(TinyLlama{.leave_out = name}.file()).error(), {"tiny.gguf", name, "missing"}));
  }
}

TEST(ReadModel, every_required_key_is_named_when_it_is_missing) {
  for (const char* missing : {"embedding_length", "block_count", "context_length", "attention.head_count",
                              "feed_forward_length", "attention.layer_norm_rms_epsilon"}) {
    GgufWriter w;
    w.add("general.architecture", "llama");
    for (const auto& [key, value] : {std::pair{"embedding_length", 32u},
                                     {"block_count", 2u},
                                     {"context_length", 128u},
                                     {"attention.head_count", 4u},
                                     {"feed_forward_length", 48u},
                                     {"attention.layer_norm_rms_epsilon", 1u}}) {
      if (std::string_view(key) != missing) w.add(std::string("llama.") + key, value);
    }
    w.add_tensor("token_embd.weight", {40, 32}, k_f32, std::vector<float>(40 * 32));
    EXPECT_TRUE(contains_all(Reading(w).error(), {std::string("llama.") + missing}));
  }
}

TEST(ReadModel, hostile_head_counts_end_in_an_error) {
  for (const uint32_t heads : {0u, 3u, 33u, 2147483647u, 4294967295u}) {
    GgufWriter w;
    w.add("general.architecture", "llama").add("llama.embedding_length", 32u).add("llama.block_count", 1u);
    w.add("llama.context_length", 128u).add("llama.feed_forward_length", 48u);
    w.add("llama.attention.layer_norm_rms_epsilon", 1e-5f).add("llama.attention.head_count", heads);
    w.add_tensor("token_embd.weight", {40, 32}, k_f32, std::vector<float>(40 * 32));
    for (const char* name : {"blk.0.attn_norm.weight", "blk.0.ffn_norm.weight", "output_norm.weight"}) {
      w.add_tensor(name, {32}, k_f32, std::vector<float>(32));
    }
    for (const char* name : {"blk.0.attn_q.weight", "blk.0.attn_k.weight", "blk.0.attn_v.weight"}) {
      w.add_tensor(name, {32, 32}, k_f32, std::vector<float>(1024));
    }
    EXPECT_NE(Reading(w).error(), "") << heads;
  }
}

TEST(ReadModel, experts_are_read_where_the_file_has_them) {
  const Reading r(TinyLlama{.n_experts = 4, .n_used = 2}.file());
  ASSERT_EQ(r.error(), "");
  size_t n_moe = 0;
  for (const Node& node : r.model.value().graph.nodes()) n_moe += node.op == Op::moe_linear ? 1u : 0u;
  EXPECT_EQ(n_moe, 2u * 3);
}

TEST(ReadModel, more_experts_used_than_there_are_is_rejected) {
  EXPECT_TRUE(contains_all(Reading(TinyLlama{.n_experts = 4, .n_used = 5}.file()).error(), {"layer 0", "moe_route"}));
}

// Properties of every model's graph: it can be exported and its memory plan is valid.
void check_graph(const Graph& graph, const std::string& name) {
  SCOPED_TRACE(name);
  for (const PlanRows rows : {PlanRows{1, 1}, PlanRows{17, 3}}) {
    const MemoryPlan plan = plan_memory(graph, rows.tokens, rows.outputs, /*keep_all=*/false);
    const MemoryPlan apart = plan_memory(graph, rows.tokens, rows.outputs, /*keep_all=*/true);
    EXPECT_EQ(overlap_of_live_values(graph, plan, rows), "");
    EXPECT_EQ(overlap_of_any_values(graph, apart, rows), "");
    EXPECT_LT(plan.n_elems * 2, apart.n_elems);
  }
  const GraphCost cost = cost_graph(graph, {.n_tokens = 5, .n_seqs = 2, .depth = 100}, {});
  const Result<json::value> parsed = parse_json(to_json(graph_to_json(graph, cost, name)));
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed.value().at("nodes").as_array().size(), graph.nodes().size());
  EXPECT_EQ(read_dot(graph_to_dot(graph, name, {.weights = true})).error, "");
  EXPECT_TRUE(contains_all(cost_table(graph, cost), {"linear", "total", "KV cache per token"}));
  EXPECT_GT(cost.tokens_per_s_bound(), 0);
  EXPECT_LE(cost.critical_time_s, cost.time_s * (1 + 1e-9));
}

TEST(EveryModel, a_tiny_llama_has_a_valid_plan_and_can_be_exported) {
  const Reading dense(TinyLlama{.n_layers = 6}.file()),
      experts(TinyLlama{.n_layers = 6, .n_experts = 4, .n_used = 2}.file());
  check_graph(dense.model.value().graph, "dense");
  check_graph(experts.model.value().graph, "experts");
}

TEST(EveryModel, costs_of_a_tiny_llama_are_those_worked_out_by_hand) {
  const Reading r(TinyLlama{.n_layers = 1}.file());
  const Graph& graph = r.model.value().graph;
  const GraphCost cost = cost_graph(graph, {.n_tokens = 1, .depth = 9}, {});
  const double matrices = 32 * 32 * 2 + 16 * 32 * 2 + 3 * 48 * 32;             // q, output; k, v; gate, up, down
  EXPECT_EQ(cost.total.weight_bytes, 4 * (matrices + 40 * 32 + 3 * 32 + 32));  // + logits, norms, one row of the table
  EXPECT_EQ(resident_weight_bytes(graph), static_cast<size_t>(4 * (matrices + 40 * 32 + 3 * 32)));
  EXPECT_EQ(kv_bytes_per_token(graph.caches(), k_f16), 2u * 16 * 2);
  EXPECT_EQ(cost.total.cache_read_bytes, 10 * 64);
  EXPECT_EQ(cost.total.cache_written_bytes, 64);
  const auto ops = sum_by_op(graph, cost);
  EXPECT_EQ(ops[static_cast<size_t>(Op::linear)].cost.flops, 2 * (matrices + 40 * 32));
}

TEST(EveryModel, of_the_oracle_has_a_valid_plan_and_can_be_exported) {
  const std::filesystem::path root = std::filesystem::path(ZINC_SOURCE_DIR) / ".." / "shared" / "oracle" / "models";
  if (!std::filesystem::exists(root)) GTEST_SKIP() << "the oracle is absent: " << root;
  int n_checked = 0, n_unknown = 0;
  for (const auto& entry : std::filesystem::directory_iterator(root)) {
    const GgufFile file = std::move(GgufFile::open(entry.path()).value());
    const Result<Model> model = read_model(file, Draft::load);
    if (!model.ok() && model.error().code == ErrorCode::unsupported) {  // a family not in the registry
      ++n_unknown;
      continue;
    }
    ASSERT_TRUE(model.ok()) << model.error().message;
    check_graph(model.value().graph, entry.path().stem().string());
    if (model.value().draft) check_graph(*model.value().draft, entry.path().stem().string() + " draft");
    ++n_checked;
  }
  fmt::print("{} models checked, {} of families this build does not know\n", n_checked, n_unknown);
  EXPECT_GT(n_checked, 0);
}

}  // namespace
}  // namespace zinc
